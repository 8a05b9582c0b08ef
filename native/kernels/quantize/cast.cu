// cast.cu: dst[i] = src[i] in another format, i < count.
// A thread casts four vectors as long as 16 bytes of the wider format; neighbouring threads have neighbouring
// vectors. All rounding is integer arithmetic on the bits (core/float_formats.h): the conversion instructions
// of the hardware differ between architectures in NaN and range. Reference:
// native/backend/cpu/quantize/cast.cc
#include "core/float_formats.h"
#include "kernels/quantize/blocks.h"

namespace spark {

using cast_block::kVectors;

template <typename Code, int kLength>
struct alignas(sizeof(Code) * kLength) Vector {
  Code codes[kLength];
};

template <typename Src, typename Dst>
__device__ void cast_elements(const typename Src::Code* src, typename Dst::Code* dst, int64_t count,
                              bool saturate) {
  using From = typename Src::Code;
  using To = typename Dst::Code;
  constexpr int kLength = cast_block::kVectorBytes / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  using Source = Vector<From, kLength>;
  using Target = Vector<To, kLength>;
  const uint32_t limit = cast_limit<Dst>(saturate);
  const bool aligned = reinterpret_cast<uintptr_t>(src) % sizeof(Source) == 0 &&
                       reinterpret_cast<uintptr_t>(dst) % sizeof(Target) == 0;
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x * kVectors + threadIdx.x, step = blockDim.x;
  if (aligned && (begin + (kVectors - 1) * step + 1) * kLength <= count) {
    Source sources[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) sources[v] = reinterpret_cast<const Source*>(src)[begin + v * step];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Target target;
#pragma unroll
      for (int i = 0; i < kLength; ++i)
        target.codes[i] = Dst::encode(Src::decode(sources[v].codes[i]), limit);
      reinterpret_cast<Target*>(dst)[begin + v * step] = target;
    }
    return;
  }
  for (int v = 0; v < kVectors; ++v) {
    const int64_t first = (begin + v * step) * kLength, end = min(count, first + kLength);
    for (int64_t i = first; i < end; ++i) dst[i] = Dst::encode(Src::decode(src[i]), limit);
  }
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
