// attention_mma.cu: attention_f32 of attention.cu on tensor cores. Queries, keys, values and the weights
// of the values are rounded to bf16, or to f16 in attention_f16_…; sums and the softmax are f32. …_64 and
// …_128 take rows of up to so many numbers. A block has 64 rows of queries, 16 for each of its warps, and
// meets 64 keys at a time, from key 0 on up to the last one that any of them sees. A row's result depends on
// its own query and mask and on the keys alone. Reference: native/backend/cpu/attention/attention.cc
#include "kernels/attention/attention.cuh"
#include "kernels/attention/blocks.h"
#include "kernels/gemm/pairs.cuh"

namespace spark {
namespace {

using attention_mma_block::kThreads;
constexpr int kTile = attention_mma_block::kRows;  // rows of queries, and keys at a time
constexpr int kKeyBlocks = kTile / 8;

// Offset of eight neighbours of a row of kDepth: those that ldmatrix reads lie in different banks.
template <int kDepth>
__device__ int tile_offset(int row, int eight) {
  return row * kDepth + (eight ^ (row & 7)) * 8;
}

// Rows of f32, rounded, with zeros up to the next multiple of 16; a row that is null is zeros.
template <typename Number, int kDepth, typename RowOf>
__device__ void load_rows(uint16_t* tile, int width, const RowOf& row_of) {
  const int runs = (width + 15) / 16 * 2;
  for (int at = threadIdx.x; at < kTile * runs; at += kThreads) {
    const int row = at / runs, eight = at % runs;
    const float* from = row_of(row);
    EightFloats values;
    values.load(from ? from + eight * 8 : nullptr, from ? width - eight * 8 : 0);
    *reinterpret_cast<Eight*>(tile + tile_offset<kDepth>(row, eight)) = values.rounded<Number>();
  }
}

// Rows of a head of keys or values.
struct HeadRows {
  const float* data;
  int64_t step, count;
  __device__ const float* operator()(int row) const { return row < count ? data + row * step : nullptr; }
};

// What a lane knows of each of its two rows: of the row lane / 4 of its warp, and of the one 8 below.
struct Rows {
  const float* mask[2];  // null: none
  int64_t seen[2];       // keys that causality lets it see
  float largest[2], total[2];

  template <typename Queries>
  __device__ Rows(const Queries& queries, int top) {
    const AttentionArgs& args = queries.args;
    for (int i = 0; i < 2; ++i) {
      const int row = top + i * 8;
      mask[i] = args.mask ? queries.row_of(args.mask, args.mask_strides, row) : nullptr;
      seen[i] =
          args.causal ? min(args.shape.keys, queries.query(row) + args.causal_offset + 1) : args.shape.keys;
      largest[i] = -INFINITY;
      total[i] = 0;
    }
  }
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

// Products with the keys from `first` on become weights of values; factor[i] is what row i of the sums so far
// has to be multiplied by.
__device__ void weigh(const AttentionArgs& args, int64_t first, float (&scores)[kKeyBlocks][4], Rows& rows,
                      float (&factor)[2]) {
  const int col = threadIdx.x % 4 * 2;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const auto seen = static_cast<int>(max(int64_t{0}, min(int64_t{kTile}, rows.seen[row] - first)));
    float best = rows.largest[row];
#pragma unroll
    for (int i = 0; i < kKeyBlocks * 2; ++i) {
      float& value = scores[i / 2][row * 2 + i % 2];
      const int key = i / 2 * 8 + col + i % 2;
      value = unmasked_score(args, value).value;
      if (key >= seen) {
        value = -INFINITY;
      } else if (rows.mask[row]) {
        value += rows.mask[row][first + key];
      }
      best = fmaxf(best, value);
    }
    best = row_max(best);
    factor[row] = rows.largest[row] == -INFINITY ? 0 : expf(rows.largest[row] - best);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kKeyBlocks * 2; ++i) {
      float& value = scores[i / 2][row * 2 + i % 2];
      value = value == -INFINITY ? 0 : expf(value - best);  // a NaN stays one
      sum += value;
    }
    rows.total[row] = rows.total[row] * factor[row] + sum;  // of this lane's keys
    rows.largest[row] = best;
  }
}

// scores[16, 64] = q · keysᵀ of a warp.
template <typename Number, int kDepth>
__device__ void multiply_keys(const uint32_t (&q)[kDepth / 16][4], const uint16_t* keys, int steps,
                              float (&scores)[kKeyBlocks][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    if (k >= steps) break;
#pragma unroll
    for (int n = 0; n < kKeyBlocks; n += 2) {
      uint32_t b[4];
      load_matrices(b, keys + tile_offset<kDepth>(n * 8 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
      mma_16x8x16<Number>(scores[n], q[k], b[0], b[1]);
      mma_16x8x16<Number>(scores[n + 1], q[k], b[2], b[3]);
    }
  }
}

// sums[16, kDepth] += weights · values. Two blocks of weights are the left side of one mma as they lie.
template <typename Number, int kDepth>
__device__ void multiply_values(const float (&weights)[kKeyBlocks][4], const uint16_t* values, int steps,
                                float (&sums)[kDepth / 8][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
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

// Rows of y from sums, two neighbours in a lane.
template <int kDepth>
__device__ void store_rows(const Queries<kTile>& queries, int top, const Rows& rows,
                           const float (&sums)[kDepth / 8][4]) {
  const AttentionArgs& args = queries.args;
  for (int i = 0; i < 2; ++i) {
    const float total = row_sum(rows.total[i]);
    const int row = top + i * 8;
    auto* y = const_cast<float*>(queries.row_of(args.y, args.y_strides, row));
    if (!y) continue;
#pragma unroll
    for (int n = 0; n < kDepth / 8; ++n) {
      for (int j = 0; j < 2; ++j) {
        const int e = n * 8 + threadIdx.x % 4 * 2 + j;
        if (e < args.shape.value_depth) y[e] = total == 0 ? 0 : sums[n][i * 2 + j] / total;
      }
    }
    if (args.log_sum && threadIdx.x % 4 == 0) {
      args.log_sum[queries.index(row)] = rows.largest[i] + logf(total);
    }
  }
}

template <int kDepth>
struct alignas(16) Tiles {
  uint16_t keys[kTile * kDepth], values[kTile * kDepth];
};

template <typename Number, int kDepth>
__device__ void attention(const AttentionArgs& args, int64_t tiles) {
  __shared__ Tiles<kDepth> shared;
  const Queries<kTile> queries(args, tiles, blockIdx.x);
  const AttentionShape& shape = args.shape;
  const int depth = static_cast<int>(shape.depth), value_depth = static_cast<int>(shape.value_depth);
  const int lane = threadIdx.x % 32, top = threadIdx.x / 32 * 16;
  const float* k = head_of(args.k, args.k_strides, queries.batch, queries.kv_head);
  const float* v = head_of(args.v, args.v_strides, queries.batch, queries.kv_head);
  load_rows<Number, kDepth>(shared.keys, depth,
                            [&](int row) { return queries.row_of(args.q, args.q_strides, row); });
  __syncthreads();
  uint32_t q[kDepth / 16][4];
#pragma unroll
  for (int i = 0; i < kDepth / 16; ++i) {
    if (i * 16 < depth)
      load_matrices(q[i], shared.keys + tile_offset<kDepth>(top + lane % 16, i * 2 + lane / 16));
  }
  Rows rows(queries, top + lane / 4);
  float sums[kDepth / 8][4] = {};
  for (int64_t first = 0; first < queries.seen(); first += kTile) {
    const int64_t count = shape.keys - first, k_step = args.k_strides.step, v_step = args.v_strides.step;
    __syncthreads();  // what was there has been used
    load_rows<Number, kDepth>(shared.keys, depth, HeadRows{k + first * k_step, k_step, count});
    load_rows<Number, kDepth>(shared.values, value_depth, HeadRows{v + first * v_step, v_step, count});
    __syncthreads();
    if (!queries.has(top)) continue;  // nor has any other row of the warp
    float scores[kKeyBlocks][4] = {}, factor[2];
    multiply_keys<Number, kDepth>(q, shared.keys, (depth + 15) / 16, scores);
    weigh(args, first, scores, rows, factor);
#pragma unroll
    for (int i = 0; i < kDepth / 8 * 4; ++i) sums[i / 4][i % 4] *= factor[i % 4 / 2];
    multiply_values<Number, kDepth>(scores, shared.values, (value_depth + 15) / 16, sums);
  }
  store_rows<kDepth>(queries, top + lane / 4, rows, sums);
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(number, Number, depth, blocks)                                          \
  extern "C" __global__ void __launch_bounds__(spark::attention_mma_block::kThreads, blocks) \
      attention_##number##_##depth(spark::AttentionArgs args, int64_t tiles) {               \
    spark::attention<spark::Number, depth>(args, tiles);                                     \
  }
SPARK_DEFINE(bf16, BF16, 64, 3)
SPARK_DEFINE(bf16, BF16, 128, 2)
SPARK_DEFINE(f16, F16, 64, 3)
SPARK_DEFINE(f16, F16, 128, 2)
