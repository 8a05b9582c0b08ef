// conv.cu: convolutions as products that are never formed: sums[line, col] = Σ_k left(line, k) · right(k,
// col) for each group. conv_<dtype>: lines are filters, k channels and taps, cols positions of all images;
// conv_transposed_<dtype>: lines are channels, k filters and taps, cols pixels; conv_weight_gradient: lines
// are filters, k positions, cols channels and taps. conv_direct_* do the same with a thread for each sum, for
// groups of few lines. Trap: a sum is formed in chunks of 256 along k, in order, whatever N and the grid are.
// Reference: native/backend/cpu/conv_passes.cc
#include "kernels/activation.cuh"
#include "kernels/conv_args.h"
#include "kernels/reduce.cuh"
#include "kernels/weight.cuh"

namespace spark {
namespace {

constexpr int kTile = 64, kDepth = 16, kChunk = 256;
constexpr int kSide = 16;  // threads along each side of a block; a thread's sums are kSide apart
constexpr int kSums = kTile / kSide;

__device__ int64_t volume(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

struct Place {
  int64_t at[3];
};

__device__ Place place(int64_t index, const int64_t (&sizes)[3]) {
  return {{index / sizes[2] / sizes[1], index / sizes[2] % sizes[1], index % sizes[2]}};
}

// The sizes of one group.
struct Group {
  __device__ explicit Group(const ConvPassArgs& args, int64_t group)
      : args(args),
        shape(args.shape),
        group(group),
        channels(args.shape.channels / args.shape.groups),
        filters(args.shape.filters / args.shape.groups),
        taps(volume(args.shape.kernel)),
        positions(volume(args.shape.out)),
        pixels(volume(args.shape.image)) {}

  // x at (channel, tap), seen from a position of an image; 0 outside.
  __device__ float image(int64_t row, int64_t position) const {
    const Place tap = place(row % taps, shape.kernel), q = place(position % positions, shape.out);
    int64_t index = position / positions * shape.channels + group * channels + row / taps;
    for (int i = 0; i < 3; ++i) {
      const int64_t p = q.at[i] * shape.stride[i] + tap.at[i] * shape.dilation[i] - shape.pad[i];
      if (p < 0 || p >= shape.image[i]) return 0;
      index = index * shape.image[i] + p;
    }
    return args.x[index];
  }

  // dy at (filter, tap), seen from a pixel of an image; 0 where the tap leads from no position there.
  __device__ float gradient(int64_t row, int64_t pixel) const {
    const Place tap = place(row % taps, shape.kernel), p = place(pixel % pixels, shape.image);
    int64_t index = pixel / pixels * shape.filters + group * filters + row / taps;
    for (int i = 0; i < 3; ++i) {
      const int64_t distance = p.at[i] + shape.pad[i] - tap.at[i] * shape.dilation[i];
      const int64_t q = distance / shape.stride[i];
      if (distance < 0 || q * shape.stride[i] != distance || q >= shape.out[i]) return 0;
      index = index * shape.out[i] + q;
    }
    return args.dy[index];
  }

  const ConvPassArgs& args;
  const ConvShape& shape;
  int64_t group, channels, filters, taps, positions, pixels;
};

template <typename Format>
struct Forward : Group {
  using Group::Group;
  __device__ int64_t lines() const { return filters; }
  __device__ int64_t cols() const { return shape.batch * positions; }
  __device__ int64_t depth() const { return channels * taps; }
  __device__ float left(int64_t line, int64_t k) const {
    return Format::element(args.w, group * filters + line, k);
  }
  __device__ float right(int64_t k, int64_t col) const { return image(k, col); }
  __device__ void store(int64_t line, int64_t col, float sum) const {
    const int64_t o = group * filters + line;
    const int64_t at = (col / positions * shape.filters + o) * positions + col % positions;
    const float residual = args.residual ? args.residual[at] : 0;
    if (args.bias) sum += args.bias[o];
    if (args.residual_first) sum += residual;
    sum = activated(args.activation, sum);
    args.out[at] = args.residual_first ? sum : sum + residual;
  }
};

template <typename Format>
struct Transposed : Group {
  using Group::Group;
  __device__ int64_t lines() const { return channels; }
  __device__ int64_t cols() const { return shape.batch * pixels; }
  __device__ int64_t depth() const { return filters * taps; }
  __device__ float left(int64_t line, int64_t k) const {
    return Format::element(args.w, group * filters + k / taps, line * taps + k % taps);
  }
  __device__ float right(int64_t k, int64_t col) const { return gradient(k, col); }
  __device__ void store(int64_t line, int64_t col, float sum) const {
    const int64_t c = group * channels + line;
    args.out[(col / pixels * shape.channels + c) * pixels + col % pixels] =
        args.bias ? sum + args.bias[c] : sum;
  }
};

struct WeightGradient : Group {
  using Group::Group;
  __device__ int64_t lines() const { return filters; }
  __device__ int64_t cols() const { return channels * taps; }
  __device__ int64_t depth() const { return shape.batch * positions; }
  __device__ float left(int64_t line, int64_t k) const {
    return args.dy[(k / positions * shape.filters + group * filters + line) * positions + k % positions];
  }
  __device__ float right(int64_t k, int64_t col) const { return image(col, k); }
  __device__ void store(int64_t line, int64_t col, float sum) const {
    args.out[(group * filters + line) * cols() + col] = sum;
  }
};

using Tile = float[kDepth][kTile + 1];  // one more: the lines of one k lie in different banks

template <typename Pass>
__device__ void product(const ConvPassArgs& args) {
  __shared__ Tile left, right;
  const int64_t tiles = gridDim.x / args.shape.groups;
  const Pass pass(args, blockIdx.x / tiles);
  const int64_t row_tiles = (pass.lines() + kTile - 1) / kTile;
  const int64_t row = blockIdx.x % tiles % row_tiles * kTile, col = blockIdx.x % tiles / row_tiles * kTile;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  float totals[kSums][kSums] = {};
  for (int64_t chunk = 0; chunk < pass.depth(); chunk += kChunk) {
    float sums[kSums][kSums] = {};
    for (int64_t k = chunk; k < min(pass.depth(), chunk + kChunk); k += kDepth) {
      __syncthreads();  // the last tiles have been used
      for (int i = threadIdx.x; i < kTile * kDepth; i += kSide * kSide) {
        const int64_t line = row + i / kDepth, of_line = k + i % kDepth, of_col = k + i / kTile;
        left[i % kDepth][i / kDepth] =
            line < pass.lines() && of_line < pass.depth() ? pass.left(line, of_line) : 0.0f;
        right[i / kTile][i % kTile] = col + i % kTile < pass.cols() && of_col < pass.depth()
                                          ? pass.right(of_col, col + i % kTile)
                                          : 0.0f;
      }
      __syncthreads();
      for (int j = 0; j < kDepth; ++j) {
        for (int m = 0; m < kSums; ++m) {
          for (int n = 0; n < kSums; ++n) {
            sums[m][n] = fmaf(left[j][y + m * kSide], right[j][x + n * kSide], sums[m][n]);
          }
        }
      }
    }
    for (int m = 0; m < kSums; ++m) {
      for (int n = 0; n < kSums; ++n) totals[m][n] += sums[m][n];
    }
  }
  for (int m = 0; m < kSums; ++m) {
    for (int n = 0; n < kSums; ++n) {
      const int64_t line = row + y + m * kSide, at = col + x + n * kSide;
      if (line < pass.lines() && at < pass.cols()) pass.store(line, at, totals[m][n]);
    }
  }
}

template <typename Pass>
__device__ void direct(const ConvPassArgs& args) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const Group sizes(args, 0);
  const int64_t lines = Pass(args, 0).lines(), cols = Pass(args, 0).cols();
  const int64_t group = index / cols / lines;
  if (group >= sizes.shape.groups) return;
  const Pass pass(args, group);
  float total = 0;
  for (int64_t chunk = 0; chunk < pass.depth(); chunk += kChunk) {
    float sum = 0;
    for (int64_t k = chunk; k < min(pass.depth(), chunk + kChunk); ++k) {
      sum = fmaf(pass.left(index / cols % lines, k), pass.right(k, index % cols), sum);
    }
    total += sum;
  }
  pass.store(index / cols % lines, index % cols, total);
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                                                     \
  extern "C" __global__ void __launch_bounds__(256) conv_##dtype(spark::ConvPassArgs args) {            \
    spark::product<spark::Forward<Format>>(args);                                                       \
  }                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256) conv_transposed_##dtype(spark::ConvPassArgs args) { \
    spark::product<spark::Transposed<Format>>(args);                                                    \
  }                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256) conv_direct_##dtype(spark::ConvPassArgs args) {     \
    spark::direct<spark::Forward<Format>>(args);                                                        \
  }                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256)                                                     \
      conv_direct_transposed_##dtype(spark::ConvPassArgs args) {                                        \
    spark::direct<spark::Transposed<Format>>(args);                                                     \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)

extern "C" __global__ void __launch_bounds__(256) conv_weight_gradient_f32(spark::ConvPassArgs args) {
  spark::product<spark::WeightGradient>(args);
}

// A block for each filter; its threads take the images and positions in turn and are added in order.
extern "C" __global__ void conv_bias_gradient_f32(const float* dy, int64_t batch, int64_t filters,
                                                  int64_t positions, float* dbias) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < batch * positions; i += blockDim.x) {
    sum += dy[(i / positions * filters + blockIdx.x) * positions + i % positions];
  }
  sum = spark::block_sum(sum);
  if (threadIdx.x == 0) dbias[blockIdx.x] = sum;
}
