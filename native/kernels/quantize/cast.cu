// cast.cu: dst[i] = src[i] in another format, i < count.
// A thread loads four vectors before it casts the first; neighbouring threads have neighbouring vectors. All
// rounding is integer arithmetic on the bits (core/float_formats.h): the conversion
// instructions of the hardware differ between architectures in NaN and range. Reference:
// native/backend/cpu/quantize/cast.cc
#include "core/float_formats.h"
#include "kernels/gemm/bytes.cuh"
#include "kernels/quantize/blocks.h"

namespace spark {

template <typename Src, typename Dst>
__device__ void cast_elements(const typename Src::Code* src, typename Dst::Code* dst, int64_t count,
                              bool saturate) {
  using namespace cast_block;
  using From = typename Src::Code;
  using To = typename Dst::Code;
  constexpr int kBits = 8 * (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  constexpr int kLength = kVectorBits / (kBits > kFewestBits ? kBits : kFewestBits);
  const uint32_t limit = cast_limit<Dst>(saturate);
  const int64_t begin = (int64_t{blockIdx.x} * blockDim.x * kVectors + threadIdx.x) * kLength;
  const int64_t step = int64_t{blockDim.x} * kLength;
  Bytes<kLength * sizeof(From)> sources[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) sources[v].load(src + begin + v * step, count - begin - v * step);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    Bytes<kLength * sizeof(To)> target;
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      target.template set<To>(i, Dst::encode(Src::decode(sources[v].template at<From>(i)), limit));
    }
    target.store(dst + begin + v * step, count - begin - v * step);
  }
}

}  // namespace spark

#define SPARK_CAST(src_name, Src, dst_name, Dst)                                                          \
  extern "C" __global__ void __launch_bounds__(spark::cast_block::kThreads) cast_##src_name##_##dst_name( \
      const spark::Src::Code* src, spark::Dst::Code* dst, int64_t count, bool saturate) {                 \
    spark::cast_elements<spark::Src, spark::Dst>(src, dst, count, saturate);                              \
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
