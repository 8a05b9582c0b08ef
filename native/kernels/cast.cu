// cast.cu: dst[i] = src[i] in another format, i < count.
// One thread per 16 elements. All rounding is integer arithmetic on the bits (core/float_formats.h): the
// conversion instructions of the hardware differ between architectures in NaN and range.
// Reference: native/backend/cpu/cast.cc
#include "kernels/elements.cuh"

namespace spark {

template <typename Src, typename Dst>
__device__ void cast_elements(const typename Src::Code* src, typename Dst::Code* dst, int64_t count,
                              bool saturate) {
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kRun;
  if (first >= count) return;
  const uint32_t limit = cast_limit<Dst>(saturate);
  Run<Src> from;
  Run<Dst> to;
  from.load(src, first, count);
#pragma unroll
  for (int i = 0; i < kRun; ++i) to.codes[i] = Dst::encode(Src::decode(from.codes[i]), limit);
  to.store(dst, first, count);
}

}  // namespace spark

#define SPARK_CAST(src_name, Src, dst_name, Dst)                                          \
  extern "C" __global__ void cast_##src_name##_##dst_name(                                \
      const spark::Src::Code* src, spark::Dst::Code* dst, int64_t count, bool saturate) { \
    spark::cast_elements<spark::Src, spark::Dst>(src, dst, count, saturate);              \
  }

#define SPARK_CASTS_FROM(src_name, Src)    \
  SPARK_CAST(src_name, Src, f32, F32)      \
  SPARK_CAST(src_name, Src, f16, F16)      \
  SPARK_CAST(src_name, Src, bf16, BF16)    \
  SPARK_CAST(src_name, Src, f8_e4m3, E4M3) \
  SPARK_CAST(src_name, Src, f8_e5m2, E5M2)

SPARK_CASTS_FROM(f32, F32)
SPARK_CASTS_FROM(f16, F16)
SPARK_CASTS_FROM(bf16, BF16)
SPARK_CASTS_FROM(f8_e4m3, E4M3)
SPARK_CASTS_FROM(f8_e5m2, E5M2)
