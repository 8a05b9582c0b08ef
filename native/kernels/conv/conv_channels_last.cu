// conv_channels_last.cu: forward convolutions of conv.cuh on tensor cores whose K are taps, each with the
// channels of its group side by side, so that both sides are copied 16 bytes at a time: the weight as
// ConvArgs::channels_last of backend.h has it, x as conv_image_<number> rounds and transposes it, once for
// all taps, or as the convolution in front of it has stored it. K rises in steps of 16 in tiles of both
// sizes. Reference: native/backend/cpu/conv/conv_passes.cc
#include "kernels/conv/blocks.h"
#include "kernels/conv/image_store.cuh"
#include "kernels/conv/image_tile.cuh"
#include "kernels/conv/tap_rows.cuh"

namespace spark {
namespace {

// One block transposes the pixels and channels of a tile of a group. The pitch lets the words of eight pixels
// and four runs of channels lie in different banks.
template <typename Number>
__device__ void pack_image(const ConvImageArgs& args) {
  using conv_image_block::kChannels, conv_image_block::kPixels;
  constexpr int kRuns = kChannels / kChannelUnit, kPairs = kChannels / 2;
  constexpr int kRows = conv_image_block::kThreads / kPixels;
  static_assert(conv_image_block::kThreads == kPixels * kRuns);
  __shared__ uint32_t pairs[kPairs][kPixels + 2];
  const int32_t tiles = (args.padded + kChannels - 1) / kChannels;
  const int32_t column = static_cast<int32_t>(blockIdx.x) % (args.groups * tiles);
  const int32_t group = column / tiles, top = column % tiles * kChannels;
  const int32_t corner = static_cast<int32_t>(blockIdx.x) / (args.groups * tiles) * kPixels;
  const int32_t pixels = args.pixels.divisor(), from = corner + static_cast<int32_t>(threadIdx.x) % kPixels;
  const int32_t n = args.pixels(from);
  const float* x = args.x + (int64_t{n} * args.groups + group) * args.channels * pixels + (from - n * pixels);
  float values[kPairs / kRows][2];
#pragma unroll
  for (int i = 0; i < kPairs / kRows; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int32_t channel = top + (static_cast<int32_t>(threadIdx.x) / kPixels + i * kRows) * 2 + j;
      const bool inside = from < args.count && channel < args.channels;
      values[i][j] = inside ? x[int64_t{channel} * pixels] : 0.0f;
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs / kRows; ++i) {
    pairs[threadIdx.x / kPixels + i * kRows][threadIdx.x % kPixels] =
        round_pair<Number>(values[i][0], values[i][1]);
  }
  __syncthreads();
  const int run = threadIdx.x % kRuns, line = threadIdx.x / kRuns;
  const int32_t channel = top + run * static_cast<int32_t>(kChannelUnit), to = corner + line;
  if (to >= args.count || channel >= args.padded) return;
  Eight eight;
  for (int i = 0; i < 4; ++i) eight.pairs[i] = pairs[run * 4 + i][line];
  *reinterpret_cast<Eight*>(args.out + (int64_t{to} * args.groups + group) * args.padded + channel) = eight;
}

template <typename Number, int kTile>
__device__ void product(const ConvChannelsLastArgs& args) {
  __shared__ Stages<3, kTile> stages;
  const int32_t tiles = gridDim.x / args.pass.shape.groups;
  const ForwardPass pass(args.pass, blockIdx.x / tiles);
  const int64_t lines = pass.lines(), depth = int64_t{pass.taps} * args.channels;
  const auto [row, col] = corner<kTile>(blockIdx.x % tiles, lines, pass.cols());
  const PackedRows<kTile> left{args.left + pass.group * lines * padded_depth(depth), lines, depth};
  Sums<kTile> sums = {};
  add_segment(stages, left, TapRows<kTile>(pass, {args.image, args.channels}, col), row, col,
              PairStep<Number>{}, sums);
  const int32_t own = static_cast<int32_t>(col) + threadIdx.x % kTile;
  const int64_t start = pass.start(min(own, pass.cols() - 1));
  const auto store = [&](int64_t m, int64_t, float& sum) {
    const int32_t o = pass.group * pass.filters + static_cast<int32_t>(m);
    const int64_t at = start + int64_t{o} * pass.positions;
    sum = pass.finished(o, at, sum);
    if (args.pass.out) args.pass.out[at] = sum;
  };
  const auto finish = [&, col = col](int64_t top, const float* half) {
    if (!args.image_out) return;
    store_image<8, kTile>(pass, top, col, half, [&](int64_t at, const float* line) {
      store_eight<Number>(args.image_out + at, line, kPitch<kTile>);
    });
  };
  store_tile<kTile>(lines, pass.cols(), row, col, sums, stages, store, finish);
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(number, Number)                                                   \
  extern "C" __global__ void __launch_bounds__(spark::conv_image_block::kThreads)      \
      conv_image_##number(spark::ConvImageArgs args) {                                 \
    spark::pack_image<spark::Number>(args);                                            \
  }                                                                                    \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(128), 2) \
      conv_channels_last_##number##_128(spark::ConvChannelsLastArgs args) {            \
    spark::product<spark::Number, 128>(args);                                          \
  }                                                                                    \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(64), 4)  \
      conv_channels_last_##number##_64(spark::ConvChannelsLastArgs args) {             \
    spark::product<spark::Number, 64>(args);                                           \
  }
SPARK_DEFINE(bf16, BF16)
SPARK_DEFINE(f16, F16)
#undef SPARK_DEFINE
