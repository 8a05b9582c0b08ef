// conv_pack.cu: the codes of a weight as the left side of conv_mma.cu, bf16 (or f16: conv_pack_half_…) in
// lines of padded_depth(depth): a filter for each line, or, conv_pack_transposed_…, a channel with the
// filters of its group (struct ConvPackArgs). conv_pack_gradient: dy for the gradient of the weight (struct
// ConvGradientPackArgs). A thread packs eight neighbours.
#include <type_traits>

#include "kernels/conv/blocks.h"
#include "kernels/conv/conv_args.h"
#include "kernels/gemm/pairs.cuh"
#include "kernels/gemm/product_args.h"

namespace spark {
namespace {

// Of line `line`, from k on.
template <typename Format, typename Number>
__device__ Eight eight_codes(const Weight& w, int32_t line, int32_t k) {
  Codes<Format, Number> codes;
  codes.load(w, line, k);
  Eight eight = codes.decode();
  if constexpr (std::is_same_v<Format, Nvfp4>) {  // which leaves 2^7 to the tensor scale
#pragma unroll
    for (uint32_t& pair : eight.pairs) pair = multiply_pair(pair, 0x43004300);
  }
  return eight;
}

// The same of the transposed weight, whose neighbours lie apart.
template <typename Format, typename Number>
__device__ Eight eight_transposed(const ConvPackArgs& args, int32_t line, int32_t k) {
  const int32_t group = line / args.channels, taps = args.taps.divisor();
  EightFloats values;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int32_t filter = args.taps(k + i);
    const auto code = [&] {
      return Format::code(args.w, group * args.filters + filter,
                          (line - group * args.channels) * taps + (k + i - filter * taps));
    };
    values.at[i] = k + i < args.depth ? code() : 0.0f;
  }
  return values.rounded<Number>();
}

template <typename Format, bool kTransposed, typename Number = BF16>
__device__ void pack(const ConvPackArgs& args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, runs = padded_depth(args.depth) / 8;
  if (at >= args.lines * runs) return;
  const auto line = static_cast<int32_t>(at / runs), k = static_cast<int32_t>(at % runs * 8);
  Eight& out = reinterpret_cast<Eight*>(args.out)[at];
  if constexpr (kTransposed) {
    out = eight_transposed<Format, Number>(args, line, k);
  } else {
    out = eight_codes<Format, Number>(args.w, line, k);
  }
}

template <typename Number>
__device__ void pack_gradient(const ConvGradientPackArgs& args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, line = at / (args.span / 8);
  if (line >= int64_t{args.spans} * args.filters) return;
  const auto filter = static_cast<int32_t>(line % args.filters);
  const auto k = static_cast<int32_t>(line / args.filters * args.span + at % (args.span / 8) * 8);
  const int32_t positions = args.positions.divisor();
  const auto dy_at = [&](int32_t n, int32_t k) {
    return args.dy + (int64_t{n} * args.filters + filter) * positions + (k - n * positions);
  };
  const int32_t first = args.positions(k);
  EightFloats values;
  if (k + 8 <= min(args.depth, (first + 1) * positions)) {
    values.load(dy_at(first, k), 8);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values.at[i] = k + i < args.depth ? *dy_at(args.positions(k + i), k + i) : 0.0f;
    }
  }
  reinterpret_cast<Eight*>(args.out)[at] = values.rounded<Number>();
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
