// conv_integer.cu: ConvIntegerArgs, exact in int32 and modulo 2^32 beyond it. conv_integer_<type of x>_…
// multiply on tensor cores; K are taps, each with the channels of its group side by side, as in
// conv_channels_last.cu. conv_image_bytes lays x out so where the convolution in front of it has not.
// conv_integer_direct_… have a thread for each sum, for groups of few filters. Reference:
// native/backend/cpu/conv/conv_integer.cc
#include "kernels/conv/blocks.h"
#include "kernels/conv/image_tile.cuh"
#include "kernels/conv/tap_rows.cuh"
#include "kernels/gemm/byte_step.cuh"
#include "kernels/gemm/bytes.cuh"
#include "kernels/gemm/integer_result.cuh"

namespace spark {
namespace {

// A thread has two runs of channels of one pixel.
__device__ void pack_image(const ConvBytesImageArgs& args) {
  using conv_integer_block::kChannels, conv_integer_block::kPixels;
  constexpr int kRun = static_cast<int>(kByteChannelUnit);
  const auto zero = static_cast<uint8_t>(args.zero ? args.zero[0] : 0);
  if (blockIdx.x == 0 && threadIdx.x < kRun) {
    args.out[int64_t{args.count} * args.groups * args.padded + threadIdx.x] = zero;
  }
  const int32_t tiles = (args.padded + kChannels - 1) / kChannels;
  const int32_t column = static_cast<int32_t>(blockIdx.x) % (args.groups * tiles);
  const int32_t group = column / tiles, top = column % tiles * kChannels;
  const int32_t pixel = static_cast<int32_t>(blockIdx.x) / (args.groups * tiles) * kPixels + threadIdx.x;
  if (pixel >= args.count) return;
  const int32_t pixels = args.pixels.divisor(), n = args.pixels(pixel);
  const uint8_t* x =
      args.x + (int64_t{n} * args.groups + group) * args.channels * pixels + (pixel - n * pixels);
  uint8_t bytes[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    bytes[i] = top + i < args.channels ? x[int64_t{top + i} * pixels] : zero;
  }
  uint8_t* to = args.out + (int64_t{pixel} * args.groups + group) * args.padded + top;
#pragma unroll
  for (int run = 0; run < kChannels / kRun; ++run) {
    Bytes<kRun> packed;
#pragma unroll
    for (int i = 0; i < kRun; ++i) packed.set(i, bytes[run * kRun + i]);
    if (top + run * kRun < args.padded) *reinterpret_cast<Bytes<kRun>*>(to + run * kRun) = packed;
  }
}

template <typename X, int kTile>
__device__ void product(const ConvIntegerPassArgs& args) {
  __shared__ ByteTiles<kTile> shared;
  const ConvIntegerArgs& conv = args.conv;
  const int32_t tiles = gridDim.x / conv.shape.groups;
  const ForwardPass pass(args.pass, blockIdx.x / tiles);
  const int64_t lines = pass.lines(), depth = int64_t{pass.taps} * args.channels;
  const Corner corner = spark::corner<kTile>(blockIdx.x % tiles, lines, pass.cols());
  const auto* w = reinterpret_cast<const uint16_t*>(conv.w);
  const PackedRows<kTile> left{w + pass.group * lines * padded_depth(depth), lines, depth};
  const TapRows<kTile, true> right(pass, {args.image, args.channels, args.outside}, corner.col);
  const bool has_zeros = conv.x_zero || conv.w_zero;
  uint32_t line_sum = 0;
  const ByteStep<kTile, int8_t, X> step{shared.stages, has_zeros, line_sum};
  Sums<kTile, uint32_t> sums = {};
  add_segment(shared.stages, left, right, corner.row, corner.col, step, sums);
  if (has_zeros) shared.keep(line_sum);
  const int32_t own = static_cast<int32_t>(corner.col) + threadIdx.x % kTile;
  const int64_t start = pass.start(min(own, pass.cols() - 1));
  const auto store = [&](int64_t m, int64_t n, uint32_t& sum) {
    const int64_t o = pass.group * lines + m;
    if (has_zeros) {
      const uint32_t p = conv.w_zero ? conv.w_zero[o] : 0, q = conv.x_zero ? conv.x_zero[0] : 0;
      sum -= shared.of_zeros(m - corner.row, n - corner.col, p, q, 2 * padded_depth(depth));
    }
    sum = finished(conv.result, conv.bias, o, sum);
    if (conv.result.y) store_finished(conv.result, start + o * pass.positions, sum);
  };
  const auto finish = [&](int64_t top, const uint32_t* half) {
    if (!conv.y_last) return;
    store_image<16, kTile>(pass, top, corner.col, half, [&](int64_t at, const uint32_t* line) {
      store_sixteen(conv.y_last + at, line, kPitch<kTile>);
    });
  };
  store_tile<kTile>(lines, pass.cols(), corner.row, corner.col, sums, shared.results.half, store, finish);
}

template <typename X>
__device__ void direct(const ConvIntegerPassArgs& args) {
  const ConvIntegerArgs& conv = args.conv;
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int32_t lines = ForwardPass(args.pass, 0).lines(), cols = ForwardPass(args.pass, 0).cols();
  const auto o = static_cast<int32_t>(index / cols), col = static_cast<int32_t>(index % cols);
  if (o >= conv.shape.filters) return;
  const ForwardPass pass(args.pass, o / lines);
  Position window;
  const int64_t n = pass.place(col, window);
  const X* image = static_cast<const X*>(conv.x) +
                   (n * conv.shape.channels + int64_t{pass.group} * pass.channels) * pass.pixels;
  const int8_t* w = conv.w + o * padded_bytes(pass.depth());
  const int32_t p = conv.x_zero ? conv.x_zero[0] : 0;
  const uint32_t q = conv.w_zero ? conv.w_zero[o] : 0;
  uint32_t sum = 0;
  for (int32_t k = 0; k < pass.depth(); ++k) {
    const Position tap = pass.tap(k);
    if (!pass.inside(window, tap.at)) continue;
    const auto x = static_cast<uint32_t>(image[window.offset + tap.offset] - p);
    sum += x * (static_cast<uint32_t>(w[k]) - q);
  }
  store_integer(conv.result, conv.bias, o, pass.start(col) + int64_t{o} * pass.positions, sum);
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::conv_integer_block::kPixels)
    conv_image_bytes(spark::ConvBytesImageArgs args) {
  spark::pack_image(args);
}

#define SPARK_DEFINE(x, X)                                                             \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(128), 2) \
      conv_integer_##x##_128(spark::ConvIntegerPassArgs args) {                        \
    spark::product<X, 128>(args);                                                      \
  }                                                                                    \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(64), 4)  \
      conv_integer_##x##_64(spark::ConvIntegerPassArgs args) {                         \
    spark::product<X, 64>(args);                                                       \
  }                                                                                    \
  extern "C" __global__ void __launch_bounds__(spark::conv_block::kThreads)            \
      conv_integer_direct_##x(spark::ConvIntegerPassArgs args) {                       \
    spark::direct<X>(args);                                                            \
  }
SPARK_DEFINE(u8, uint8_t)
SPARK_DEFINE(i8, int8_t)
