// tile_mma.cuh: 16 rows of queries for each warp against a tile of keys on tensor cores, for the attention
// kernels in 16 bits. Scores are in units of ln 2, so that weights are powers of two.
#pragma once

#include "kernels/attention/blocks.h"
#include "kernels/gemm/pairs.cuh"
#include "kernels/store.cuh"

namespace spark {
namespace {

using attention_mma_block::kThreads;
constexpr int kTile = attention_mma_block::kRows;  // rows of queries
constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

// Keys that the queries meet at a time: fewer of long heads, whose sums fill the registers.
template <int kDepth>
constexpr int kKeysOf = kDepth <= 128 ? kTile : kTile / 2;

// Keys and values of a tile; before there are any, the queries, which take the place of both.
template <int kDepth>
struct alignas(16) KeyTiles {
  static_assert(2 * kKeysOf<kDepth> >= kTile);
  uint16_t rows[2 * kKeysOf<kDepth> * kDepth];
  __device__ uint16_t* queries() { return rows; }
  __device__ uint16_t* keys() { return rows; }
  __device__ uint16_t* values() { return rows + kKeysOf<kDepth> * kDepth; }
};

// Offset of eight neighbours of a row of kDepth: those that ldmatrix reads lie in different banks.
template <int kDepth>
__device__ int tile_offset(int row, int eight) {
  return row * kDepth + (eight ^ (row & 7)) * 8;
}

// kRows of f32, rounded, with zeros up to kDepth; a row that is null is zeros.
template <typename Number, int kDepth, int kRows, typename RowOf>
__device__ void load_rows(uint16_t* tile, int width, const RowOf& row_of) {
  // Loads of a thread that are under way together: sums of long rows leave few registers.
  constexpr int kRuns = kDepth / 8, kAhead = kDepth <= 128 ? 4 : 2;
  static_assert(kRows * kRuns % (kThreads * kAhead) == 0);
#pragma unroll 1
  for (int first = threadIdx.x; first < kRows * kRuns; first += kThreads * kAhead) {
    EightFloats values[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = first + i * kThreads, row = at / kRuns, eight = at % kRuns;
      const float* from = row_of(row);
      values[i].load(from ? from + eight * 8 : nullptr, from ? width - eight * 8 : 0);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = first + i * kThreads, row = at / kRuns, eight = at % kRuns;
      *reinterpret_cast<Eight*>(tile + tile_offset<kDepth>(row, eight)) =
          values[i].template rounded<Number>();
    }
  }
}

// The queries of a warp, whose first row is `top`, as the left side of products.
template <int kDepth>
__device__ void load_queries(uint32_t (&q)[kDepth / 16][4], const uint16_t* tile, int top, int steps) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kDepth / 16; ++i) {
    if (i < steps) load_matrices(q[i], tile + tile_offset<kDepth>(top + lane % 16, i * 2 + lane / 16));
  }
}

// What a lane has summed of each of its two rows: of the row lane / 4 of its warp, and of the one 8 below.
struct RowSums {
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of this lane's keys
};

// The largest of four lanes that share a row, or their sum.
__device__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFu, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2);
}

// Element i of the lane's scores of a row is that of this key of the tile.
__device__ int key_of(int i) { return i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// sums[16, 8 · kBlocks] += a · rowsᵀ, of the 16 columns of step k.
template <typename Number, int kDepth, int kBlocks>
__device__ void multiply_step(const uint32_t (&a)[4], const uint16_t* rows, int k,
                              float (&sums)[kBlocks][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kBlocks; n += 2) {
    uint32_t b[4];
    load_matrices(b, rows + tile_offset<kDepth>(n * 8 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
    mma_16x8x16<Number>(sums[n], a, b[0], b[1]);
    mma_16x8x16<Number>(sums[n + 1], a, b[2], b[3]);
  }
}

// scores[16, 8 · kBlocks] += q · keysᵀ of a warp.
template <typename Number, int kDepth, int kBlocks>
__device__ void multiply_keys(const uint32_t (&q)[kDepth / 16][4], const uint16_t* keys, int steps,
                              float (&scores)[kBlocks][4]) {
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    if (k >= steps) break;
    multiply_step<Number, kDepth>(q[k], keys, k, scores);
  }
}

// Products become scores.
template <int kBlocks>
__device__ void scale_scores(float (&scores)[kBlocks][4], float scale, float softcap) {
  if (softcap == 0) {
#pragma unroll
    for (int i = 0; i < kBlocks * 4; ++i) scores[i / 4][i % 4] *= scale * kLog2e;
  } else {
#pragma unroll
    for (int i = 0; i < kBlocks * 4; ++i) {
      float& score = scores[i / 4][i % 4];
      score = softcap * kLog2e * tanhf(score * scale / softcap);
    }
  }
}

// Keys outside of [begin, end) of the tile weigh nothing in row `row` of the lane.
template <int kBlocks>
__device__ void hide_keys(float (&scores)[kBlocks][4], int row, int begin, int end) {
#pragma unroll
  for (int i = 0; i < kBlocks * 2; ++i) {
    float& score = scores[i / 2][row * 2 + i % 2];
    score = key_of(i) >= begin && key_of(i) < end ? score : -INFINITY;
  }
}

// Scores become weights of values, and sums so far are brought into their unit. A NaN stays one.
template <int kBlocks, int kSums>
__device__ void weigh(float (&scores)[kBlocks][4], RowSums& rows, float (&sums)[kSums][4]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float best = rows.largest[row];
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) best = fmaxf(best, scores[i / 2][row * 2 + i % 2]);
    best = row_max(best);
    const float unit = best == -INFINITY ? 0 : best;
    const float factor = exp2f(rows.largest[row] - unit);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) {
      float& score = scores[i / 2][row * 2 + i % 2];
      score = exp2f(score - unit);
      sum += score;
    }
    rows.total[row] = rows.total[row] * factor + sum;
    rows.largest[row] = best;
#pragma unroll
    for (int i = 0; i < kSums * 2; ++i) sums[i / 2][row * 2 + i % 2] *= factor;
  }
}

// sums[16, kDepth] += weights · values. Two blocks of weights are the left side of one mma as they lie.
template <typename Number, int kDepth, int kBlocks>
__device__ void multiply_values(const float (&weights)[kBlocks][4], const uint16_t* values, int steps,
                                float (&sums)[kDepth / 8][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kBlocks / 2; ++k) {
    const float(&low)[4] = weights[2 * k], (&high)[4] = weights[2 * k + 1];
    const uint32_t a[4] = {round_pair<Number>(low[0], low[1]), round_pair<Number>(low[2], low[3]),
                           round_pair<Number>(high[0], high[1]), round_pair<Number>(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kDepth / 16; ++n) {
      if (n >= steps) break;
      uint32_t b[4];
      load_matrices_transposed(b, values + tile_offset<kDepth>(k * 16 + lane % 16, n * 2 + lane / 16));
      mma_16x8x16<Number>(sums[2 * n], a, b[0], b[1]);
      mma_16x8x16<Number>(sums[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Row `row` of the lane, from y[first] on, two neighbours at a time, multiplied by a factor; a factor of 0
// makes zeros of anything.
template <int kDepth>
__device__ void store_row(FloatType type, void* y, int64_t first, int64_t width,
                          const float (&sums)[kDepth / 8][4], int row, float factor) {
#pragma unroll
  for (int i = 0; i < kDepth / 4; ++i) {
    const int e = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (e < width) store_as(type, y, first + e, factor == 0 ? 0 : sums[i / 2][row * 2 + i % 2] * factor);
  }
}

}  // namespace
}  // namespace spark
