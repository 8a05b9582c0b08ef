// conv.cu: the convolutions of conv.cuh as products that are never formed, in f32: conv_<dtype>,
// conv_transposed_<dtype> and conv_weight_gradient. conv_direct_* do the same with a thread for each sum, for
// groups of few lines. conv_add_spans: what spans of a gradient come to. Trap: a sum is formed in chunks of
// 256 along k, in order, whatever N and the grid are. Reference: native/backend/cpu/conv/conv_passes.cc
#include "kernels/conv/blocks.h"
#include "kernels/conv/conv.cuh"
#include "kernels/gemm/weight.cuh"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

using conv_block::kChunk;
using conv_block::kTile;
constexpr int kDepth = 16;
constexpr int kSide = 16;  // threads along each side of a block; a thread's sums are kSide apart
constexpr int kSums = kTile / kSide;
static_assert(kSide * kSide == conv_block::kThreads);

template <typename Format>
struct Forward : ForwardPass {
  using ForwardPass::ForwardPass;
  __device__ float left(int32_t line, int32_t k) const {
    return Format::element(args.w, group * filters + line, k);
  }
};

template <typename Format>
struct Transposed : TransposedPass {
  using TransposedPass::TransposedPass;
  __device__ float left(int32_t line, int32_t k) const {
    int32_t tap[3];
    const int32_t filter = args.kernel.split(k, tap);
    return Format::element(args.w, group * filters + filter, line * taps + (k - filter * taps));
  }
};

struct WeightGradient : WeightGradientPass {
  float* out;
  __device__ WeightGradient(const ConvPassArgs& args, int32_t group, float* out)
      : WeightGradientPass(args, group), out(out) {}
  __device__ float left(int32_t line, int32_t k) const {
    return args.dy[Group::start(k, args.out_axes, args.shape.filters, positions) +
                   int64_t{group * filters + line} * positions];
  }
  __device__ int64_t start(int32_t col) const { return col; }
  __device__ void store(int32_t line, int64_t start, float sum) const {
    out[(int64_t{group} * filters + line) * cols() + start] = sum;
  }
};

using Tile = float[kDepth][kTile + 1];  // one more: the lines of one k lie in different banks

// Tile `block` of one group, over [first, depth) along k.
template <typename Pass>
__device__ void product(const Pass& pass, int32_t block, int32_t first, int32_t depth) {
  __shared__ Tile left, right;
  const int32_t row_tiles = (pass.lines() + kTile - 1) / kTile;
  const int32_t row = block % row_tiles * kTile, col = block / row_tiles * kTile;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  const int32_t own_col = col + threadIdx.x % kTile;
  const bool col_inside = own_col < pass.cols();
  const auto across = pass.across(col_inside ? own_col : 0);
  float totals[kSums][kSums] = {};
  for (int32_t chunk = first; chunk < depth; chunk += kChunk) {
    float sums[kSums][kSums] = {};
    for (int32_t k = chunk; k < min(depth, chunk + kChunk); k += kDepth) {
      __syncthreads();  // the last tiles have been used
      for (int i = threadIdx.x; i < kTile * kDepth; i += kSide * kSide) {
        const int32_t line = row + i / kDepth, of_line = k + i % kDepth, of_col = k + i / kTile;
        left[i % kDepth][i / kDepth] =
            line < pass.lines() && of_line < depth ? pass.left(line, of_line) : 0.0f;
        right[i / kTile][i % kTile] =
            col_inside && of_col < depth ? pass.right(pass.along(of_col), across) : 0.0f;
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
  for (int n = 0; n < kSums; ++n) {
    const int32_t at = col + x + n * kSide;
    if (at >= pass.cols()) continue;
    const int64_t start = pass.start(at);
    for (int m = 0; m < kSums; ++m) {
      const int32_t line = row + y + m * kSide;
      if (line < pass.lines()) pass.store(line, start, totals[m][n]);
    }
  }
}

template <typename Pass>
__device__ void product(const ConvPassArgs& args) {
  const int32_t tiles = gridDim.x / args.shape.groups;
  const Pass pass(args, blockIdx.x / tiles);
  product(pass, blockIdx.x % tiles, 0, pass.depth());
}

__device__ void weight_gradient(const ConvGradientArgs& args) {
  const int32_t blocks = gridDim.x / args.spans, tiles = blocks / args.pass.shape.groups;
  const int32_t span = blockIdx.x / blocks, block = blockIdx.x % blocks;
  const Group sizes(args.pass, block / tiles);
  const int64_t count = args.pass.shape.filters * sizes.channels * sizes.taps;
  const WeightGradient pass(args.pass, sizes.group, args.pass.out + span * count);
  const int32_t first = args.first + span * args.span;
  product(pass, block % tiles, first, min(pass.depth(), first + args.span));
}

template <typename Pass>
__device__ void direct(const ConvPassArgs& args) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int32_t lines = Pass(args, 0).lines(), cols = Pass(args, 0).cols();
  const auto line = static_cast<int32_t>(index / cols), col = static_cast<int32_t>(index % cols);
  if (line >= args.shape.groups * lines) return;
  const Pass pass(args, line / lines);
  const auto across = pass.across(col);
  float total = 0;
  for (int32_t chunk = 0; chunk < pass.depth(); chunk += kChunk) {
    float sum = 0;
    for (int32_t k = chunk; k < min(pass.depth(), chunk + kChunk); ++k) {
      sum = fmaf(pass.left(line % lines, k), pass.right(pass.along(k), across), sum);
    }
    total += sum;
  }
  pass.store(line % lines, pass.start(col), total);
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                         \
  extern "C" __global__ void __launch_bounds__(spark::conv_block::kThreads) \
      conv_##dtype(spark::ConvPassArgs args) {                              \
    spark::product<spark::Forward<Format>>(args);                           \
  }                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::conv_block::kThreads) \
      conv_transposed_##dtype(spark::ConvPassArgs args) {                   \
    spark::product<spark::Transposed<Format>>(args);                        \
  }                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::conv_block::kThreads) \
      conv_direct_##dtype(spark::ConvPassArgs args) {                       \
    spark::direct<spark::Forward<Format>>(args);                            \
  }                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::conv_block::kThreads) \
      conv_direct_transposed_##dtype(spark::ConvPassArgs args) {            \
    spark::direct<spark::Transposed<Format>>(args);                         \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)

extern "C" __global__ void __launch_bounds__(spark::conv_block::kThreads)
    conv_weight_gradient_f32(spark::ConvGradientArgs args) {
  spark::weight_gradient(args);
}

// out[i] = Σ of parts[span, i], added to what is there when `add`.
extern "C" __global__ void conv_add_spans_f32(const float* parts, int32_t spans, int64_t count, bool add,
                                              float* out) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float total = add ? out[i] : 0.0f;
  for (int32_t span = 0; span < spans; ++span) total += parts[span * count + i];
  out[i] = total;
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
