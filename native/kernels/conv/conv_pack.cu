// conv_pack.cu: the codes of a weight as the left side of conv_mma.cu, bf16 (or f16: conv_pack_half_…) in
// lines of padded_depth(depth): a filter for each line, or, conv_pack_transposed_…, a channel with the
// filters of its group (struct ConvPackArgs). conv_pack_gradient: dy for the gradient of the weight (struct
// ConvGradientPackArgs). A thread packs eight neighbours.
#include "kernels/conv/blocks.h"
#include "kernels/conv/conv_args.h"
#include "kernels/gemm/pairs.cuh"
#include "kernels/gemm/product_args.h"

namespace spark {
namespace {

template <typename Format, bool kTransposed>
__device__ float code(const ConvPackArgs& args, int32_t line, int32_t k) {
  if constexpr (kTransposed) {
    const int32_t group = line / args.channels, filter = args.taps(k), taps = args.taps.divisor();
    return Format::code(args.w, group * args.filters + filter,
                        (line - group * args.channels) * taps + (k - filter * taps));
  } else {
    return Format::code(args.w, line, k);
  }
}

template <typename Number>
__device__ Eight rounded(const float (&values)[8]) {
  Eight packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) packed.pairs[i] = round_pair<Number>(values[2 * i], values[2 * i + 1]);
  return packed;
}

template <typename Format, bool kTransposed, typename Number = BF16>
__device__ void pack(const ConvPackArgs& args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, runs = padded_depth(args.depth) / 8;
  if (at >= args.lines * runs) return;
  const auto line = static_cast<int32_t>(at / runs), k = static_cast<int32_t>(at % runs * 8);
  float values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] = k + i < args.depth ? code<Format, kTransposed>(args, line, k + i) : 0.0f;
  }
  reinterpret_cast<Eight*>(args.out)[at] = rounded<Number>(values);
}

template <typename Number>
__device__ void pack_gradient(const ConvGradientPackArgs& args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, line = at / (args.span / 8);
  if (line >= int64_t{args.spans} * args.filters) return;
  const auto filter = static_cast<int32_t>(line % args.filters);
  const auto k = static_cast<int32_t>(line / args.filters * args.span + at % (args.span / 8) * 8);
  const int32_t positions = args.positions.divisor();
  float values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int32_t n = args.positions(k + i);
    const int64_t start = (int64_t{n} * args.filters + filter) * positions;
    values[i] = k + i < args.depth ? args.dy[start + (k + i - n * positions)] : 0.0f;
  }
  reinterpret_cast<Eight*>(args.out)[at] = rounded<Number>(values);
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                              \
  extern "C" __global__ void __launch_bounds__(spark::conv_pack_block::kThreads) \
      conv_pack_##dtype(spark::ConvPackArgs args) {                              \
    spark::pack<Format, false>(args);                                            \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(spark::conv_pack_block::kThreads) \
      conv_pack_transposed_##dtype(spark::ConvPackArgs args) {                   \
    spark::pack<Format, true>(args);                                             \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)
#undef SPARK_DEFINE

#define SPARK_DEFINE(dtype, Format)                                              \
  extern "C" __global__ void __launch_bounds__(spark::conv_pack_block::kThreads) \
      conv_pack_half_##dtype(spark::ConvPackArgs args) {                         \
    spark::pack<Format, false, spark::F16>(args);                                \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(spark::conv_pack_block::kThreads) \
      conv_pack_half_transposed_##dtype(spark::ConvPackArgs args) {              \
    spark::pack<Format, true, spark::F16>(args);                                 \
  }
SPARK_DEFINE(f32, spark::Plain<spark::F32>)
SPARK_DEFINE(f16, spark::Plain<spark::F16>)

extern "C" __global__ void __launch_bounds__(spark::conv_pack_block::kThreads)
    conv_pack_gradient(spark::ConvGradientPackArgs args) {
  spark::pack_gradient<spark::BF16>(args);
}
extern "C" __global__ void __launch_bounds__(spark::conv_pack_block::kThreads)
    conv_pack_half_gradient(spark::ConvGradientPackArgs args) {
  spark::pack_gradient<spark::F16>(args);
}
