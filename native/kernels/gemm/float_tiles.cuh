// float_tiles.cuh: matrix products in f32 in tiles, as linear.cu describes them.
#pragma once

#include "kernels/gemm/blocks.h"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/lines.cuh"
#include "kernels/gemm/weight.cuh"

namespace spark {
namespace {

using linear_block::kChunk;
using linear_block::kThreads;
using linear_block::kTile;
constexpr int kDepth = 16;
constexpr int kSide = 16;  // threads along each side of a block; a thread's sums are kSide apart
constexpr int kSums = kTile / kSide;
static_assert(kSide * kSide == kThreads);

template <typename Format>
struct WeightRows {
  const Weight& weight;
  __device__ bool k_first() const { return true; }
  __device__ float element(int64_t line, int64_t k) const { return Format::element(weight, line, k); }
};

template <typename Format>
struct WeightColumns {
  const Weight& weight;
  __device__ bool k_first() const { return false; }
  __device__ float element(int64_t line, int64_t k) const { return Format::element(weight, k, line); }
};

// Elements that a thread loads together: more take more registers than linear_block::kBlocks leaves, as two
// do on an H100 of columns in Q5_K.
template <typename Operand>
constexpr int kAhead = 2;
template <>
constexpr int kAhead<WeightColumns<InBlocks<blocks::Q5_K>>> = 1;

using Tile = float[kDepth][kTile + 1];  // one more: the lines of one k lie in different banks

// Neighbouring threads read neighbouring addresses. Outside of the operand is zero.
template <typename Operand>
__device__ void load(const Operand& operand, int64_t line, int64_t lines, int64_t k, int64_t depth,
                     Tile& tile) {
  const bool k_first = operand.k_first();
  int at_line = k_first ? threadIdx.x / kDepth : threadIdx.x % kTile;
  int at_k = k_first ? threadIdx.x % kDepth : threadIdx.x / kTile;
  const int line_step = k_first ? kThreads / kDepth : 0, k_step = k_first ? 0 : kThreads / kTile;
#pragma unroll kAhead < Operand>
  for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
    const bool inside = line + at_line < lines && k + at_k < depth;
    tile[at_k][at_line] = inside ? operand.element(line + at_line, k + at_k) : 0.0f;
    at_line += line_step;
    at_k += k_step;
  }
}

// A range of K that begins where a chunk does.
struct Range {
  int64_t first, end;
};

template <typename A, typename B>
__device__ void add_segment(const A& a, const B& b, int64_t row, int64_t rows, int64_t col, int64_t cols,
                            Range range, float (&totals)[kSums][kSums]) {
  __shared__ Tile left, right;
  const int64_t depth = range.end;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  for (int64_t chunk = range.first; chunk < depth; chunk += kChunk) {
    float sums[kSums][kSums] = {};
    for (int64_t k = chunk; k < min(depth, chunk + kChunk); k += kDepth) {
      __syncthreads();  // the last tiles have been used
      load(a, row, rows, k, depth, left);
      load(b, col, cols, k, depth, right);
      __syncthreads();
      for (int j = 0; j < kDepth; ++j) {
#pragma unroll
        for (int m = 0; m < kSums; ++m) {
#pragma unroll
          for (int n = 0; n < kSums; ++n) {
            sums[m][n] = fmaf(left[j][y + m * kSide], right[j][x + n * kSide], sums[m][n]);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kSums; ++m) {
#pragma unroll
      for (int n = 0; n < kSums; ++n) totals[m][n] += sums[m][n];
    }
  }
}

// Calls visit(m, n, sum) for the sums of this thread that are inside of the product.
template <typename Visit>
__device__ void for_each_sum(int64_t row, int64_t rows, int64_t col, int64_t cols,
                             const float (&sums)[kSums][kSums], Visit visit) {
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      const int64_t m = row + y + i * kSide, n = col + x + j * kSide;
      if (m < rows && n < cols) visit(m, n, sums[i][j]);
    }
  }
}

// What a block adds of a segment: all of it, or, of parts, the chunk at `first`, which may lie in front of K
// or behind it.
__device__ Range range_of(const ProductArgs& args, int64_t first, int64_t depth) {
  if (!args.parts) return {0, depth};
  return first < 0 ? Range{0, 0} : Range{first, min(first + kChunk, depth)};
}

template <typename B>
__device__ void product(const ProductArgs& args) {
  const auto tiles_of = [](int64_t lines) { return static_cast<uint32_t>((lines + kTile - 1) / kTile); };
  const uint32_t row_tiles = tiles_of(args.rows), tiles = row_tiles * tiles_of(args.cols);
  const uint32_t part = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int64_t row = int64_t{tile % row_tiles} * kTile, col = int64_t{tile / row_tiles} * kTile;
  float sums[kSums][kSums] = {};
  const int64_t chunk = int64_t{part} * kChunk;
  add_segment(FloatLines{args.a}, B{args.w}, row, args.rows, col, args.cols,
              range_of(args, chunk, args.depth), sums);
  add_segment(FloatLines{args.a2}, FloatLines{args.b2}, row, args.rows, col, args.cols,
              range_of(args, chunk - (args.depth + kChunk - 1) / kChunk * kChunk, args.depth2), sums);
  for_each_sum(row, args.rows, col, args.cols, sums, [&](int64_t m, int64_t n, float sum) {
    if (args.parts) {
      args.parts[(part * args.rows + m) * args.cols + n] = sum;
    } else {
      store(args.epilogue, m, n, sum);
    }
  });
}

}  // namespace
}  // namespace spark
