// dora.cu: the parts of a DoRA layer that are not matrix products: ‖W‖² by rows, the norm's share of the
// gradient, merge and unmerge. The products are those of linear.cu and linear_mma.cu, the norms of V = W +
// s·B·A those of dora_norm.cu. Reference: native/backend/cpu/dora/dora_backward.cc, dora_merge.cc, weight.cc
#include "kernels/dora/blocks.h"
#include "kernels/dora/norm.cuh"
#include "kernels/gemm/weight.cuh"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

// One block per row.
template <typename Format>
__device__ void weight_norm2(const Weight& weight, float* out) {
  const int64_t row = blockIdx.x;
  float sum = 0;
  for (int64_t col = threadIdx.x * 8; col < weight.cols; col += blockDim.x * 8) {
    float values[8];
    Format::eight(weight, row, col, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += values[i] * values[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[row] = sum;
}

// A thread has kSide x kSide elements of the tile of its block.
constexpr int kSide = 8, kTileRows = dora_block::kRows, kTileCols = dora_block::kCols;
static_assert(kTileRows * kTileCols == dora_block::kThreads * kSide * kSide);

// deltas = scale · (B·A)[row .. row + 8, col .. col + 8). Beyond the matrix whatever.
__device__ void low_rank_tile(const LowRank& low_rank, int64_t row, int64_t rows, int64_t col, int64_t cols,
                              float (&deltas)[kSide][kSide]) {
  for (int64_t r = 0; r < low_rank.rank; ++r) {
    Bytes<32> a;
    a.load(low_rank.a + r * cols + col, cols - col);
#pragma unroll
    for (int m = 0; m < kSide; ++m) {
      const float b = low_rank.scale * low_rank.b[min(row + m, rows - 1) * low_rank.rank + r];
#pragma unroll
      for (int n = 0; n < kSide; ++n) deltas[m][n] = fmaf(b, bits_float(a.words[n]), deltas[m][n]);
    }
  }
}

// out = combine(row, values, deltas) of a matrix whose elements read(row, col, values) gives by eights.
template <typename Read, typename Combine>
__device__ void change_tile(const LowRank& low_rank, int64_t rows, int64_t cols, float* out, Read read,
                            Combine combine) {
  const int64_t across = (cols + kTileCols - 1) / kTileCols;
  const int64_t row = blockIdx.x / across * kTileRows + threadIdx.x / (kTileCols / kSide) * kSide;
  const int64_t col = blockIdx.x % across * kTileCols + threadIdx.x % (kTileCols / kSide) * kSide;
  if (row >= rows || col >= cols) return;
  float deltas[kSide][kSide] = {};
  low_rank_tile(low_rank, row, rows, col, cols, deltas);
#pragma unroll
  for (int m = 0; m < kSide; ++m) {
    if (row + m >= rows) return;
    float values[8];
    read(row + m, col, values);
    Bytes<32> results;
#pragma unroll
    for (int n = 0; n < kSide; ++n) {
      results.words[n] = float_bits(combine(row + m, values[n], deltas[m][n]));
    }
    results.store(out + (row + m) * cols + col, cols - col);
  }
}

template <typename Format>
__device__ void dora_merge(const DoraMergeArgs& args) {
  change_tile(
      args.low_rank, args.weight.rows, args.weight.cols, args.merged,
      [&](int64_t row, int64_t col, float(&values)[8]) { Format::eight(args.weight, row, col, values); },
      [&](int64_t row, float value, float delta) { return args.gain[row] * (value + delta); });
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                              \
  extern "C" __global__ void weight_norm2_##dtype(spark::WeightNorm2Args args) { \
    spark::weight_norm2<Format>(args.weight, args.out);                          \
  }                                                                              \
  extern "C" __global__ void __launch_bounds__(spark::dora_block::kThreads)      \
      dora_merge_##dtype(spark::DoraMergeArgs args) {                            \
    spark::dora_merge<Format>(args);                                             \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)

extern "C" __global__ void __launch_bounds__(spark::dora_block::kThreads)
    dora_unmerge_f32(spark::DoraUnmergeArgs args) {
  const spark::Weight merged{
      spark::DType::kF32, args.rows, args.cols, args.merged, nullptr, nullptr, 0, false};
  spark::change_tile(
      args.low_rank, args.rows, args.cols, args.restored,
      [&](int64_t row, int64_t col, float(&values)[8]) {
        spark::Plain<spark::F32>::eight(merged, row, col, values);
      },
      [&](int64_t row, float value, float delta) { return value / args.gain[row] - delta; });
}

// c[o] = magnitude · dmagnitude / norm², by which the exact gradient of the norm is weighted.
extern "C" __global__ void dora_backward_norm_f32(const float* gain, const float* dmagnitude,
                                                  const float* norm, int64_t rows, float* c) {
  const int64_t o = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (o < rows) c[o] = gain[o] * dmagnitude[o] / spark::clamped(norm[o]);
}
