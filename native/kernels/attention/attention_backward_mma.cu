// attention_backward_mma.cu: the gradients of attention.cu on tensor cores. Queries, keys, values, dy, the
// weights P and the gradients of the scores, dS = P ∘ (dy · vᵀ − products), are rounded to bf16, or to f16 in
// …_f16_…; sums and the softmax are f32. …_64 and …_128 take rows of up to so many elements. Operands are
// packed first, so that tiles are copied without registers while others are multiplied. A warp has 16 rows of
// dq, or of dk and dv, and its sums lie in registers. Tiles that causality hides from a block are not read,
// those that it hides from a warp are not multiplied. Reference:
// native/backend/cpu/attention/attention_backward.cc
#include "kernels/attention/backward_args.h"
#include "kernels/attention/row_views.cuh"

namespace spark {
namespace {

constexpr int kMet = 32, kMetBlocks = kMet / 8;  // rows that a tile of kTile meets at a time

// A thread packs eight neighbours of a row.
template <typename Number>
__device__ void pack(const AttentionPackArgs& args) {
  const int64_t runs = packed_width(args.width) / 8;
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = at / runs, col = at % runs * 8;
  if (row >= args.batch * args.heads * args.rows) return;
  const int64_t head = row / args.rows;
  const float* from = head_of(args.data, args.strides, head / args.heads, head % args.heads) +
                      row % args.rows * args.strides.step;
  EightFloats values;
  values.load(from + col, args.width - col);
  reinterpret_cast<Eight*>(args.packed)[at] = values.rounded<Number>();
}

// Starts to copy packed rows, with zeros in the place of those from `count` on and up to kDepth.
template <int kDepth, int kRows>
__device__ void copy_rows(uint16_t* tile, const uint16_t* rows, int width, int64_t count) {
  constexpr int kRuns = kDepth / 8;
  static_assert(kRows * kRuns % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kRuns / kThreads; ++i) {
    const int at = threadIdx.x + i * kThreads, row = at / kRuns, eight = at % kRuns;
    const bool inside = row < count && eight * 8 < width;
    copy_async(tile + tile_offset<kDepth>(row, eight), inside ? rows + row * width + eight * 8 : rows,
               inside);
  }
}

// What scores are compared with, in units of ln 2, so that weights are powers of two.
__device__ float unit_of(float log_sum) { return log_sum == -INFINITY ? INFINITY : log_sum * kLog2e; }

// Multiplies the gradients of scores by the derivative of softcap.
template <int kBlocks>
__device__ void multiply_slopes(const float (&scores)[kBlocks][4], float softcap,
                                float (&gradients)[kBlocks][4]) {
  if (softcap == 0) return;
#pragma unroll
  for (int i = 0; i < kBlocks * 4; ++i) {
    const float capped = scores[i / 4][i % 4] / (softcap * kLog2e);
    gradients[i / 4][i % 4] *= 1 - capped * capped;
  }
}

// Scores become weights, and what their gradients are without them is multiplied by them.
template <int kBlocks, typename UnitOf>
__device__ void weigh_gradients(float (&scores)[kBlocks][4], float (&gradients)[kBlocks][4],
                                const UnitOf& unit_of_element) {
#pragma unroll
  for (int i = 0; i < kBlocks * 4; ++i) {
    float& score = scores[i / 4][i % 4];
    score = exp2f(score - unit_of_element(i));
    gradients[i / 4][i % 4] *= score;
  }
}

// dq of 64 rows of a head of keys, which meets tiles of keys. Keys and values of the next tile are on their
// way while one is multiplied.
template <typename Number, int kDepth>
struct QueryGradient {
  struct alignas(16) Shared {
    uint16_t keys[2][kMet * kDepth],
        values[2][kMet * kDepth];  // of two tiles; the queries and their dy before
  };
  static_assert(2 * kMet >= kTile);

  const AttentionBackwardArgs& args;
  const PackedAttention& packed;
  const float* products;
  const Queries<kTile> queries;
  Shared& shared;
  const int width = static_cast<int>(packed_width(args.forward.shape.depth));
  const int value_width = static_cast<int>(packed_width(args.forward.shape.value_depth));
  const int top = threadIdx.x / 32 * 16;
  uint32_t q[kDepth / 16][4], dy[kDepth / 16][4];
  float sums[kDepth / 8][4] = {};

  __device__ void run() {
    load_own();
    const int row = top + threadIdx.x % 32 / 4;
    const RowViews views(queries, row);
    float units[2] = {INFINITY, INFINITY}, own_products[2] = {};
    int seen = 0;  // keys that rows of the warp see
    for (int i = 0; i < 2; ++i) {
      if (!queries.has(row + i * 8)) continue;
      const int64_t at = queries.index(row + i * 8);
      units[i] = unit_of(args.forward.log_sum[at]);
      own_products[i] = products[at];
      seen = max(seen, views.seen[i]);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) seen = max(seen, __shfl_xor_sync(0xFFFFFFFFu, seen, lanes));
    const auto end = static_cast<int>(queries.seen());
    copy_tile(0, end, 0);
    for (int first = 0, side = 0; first < end; first += kMet, side ^= 1) {
      copy_tile(first + kMet, end, side ^ 1);
      copy_wait<1>();
      __syncthreads();  // the tile is there
      if (first < seen) {
        float scores[kMetBlocks][4] = {}, gradients[kMetBlocks][4];
#pragma unroll
        for (int i = 0; i < kMetBlocks * 4; ++i) gradients[i / 4][i % 4] = -own_products[i % 4 / 2];
        multiply_keys<Number, kDepth>(q, shared.keys[side], width / 16, scores);
        multiply_keys<Number, kDepth>(dy, shared.values[side], value_width / 16, gradients);
        scale_scores(scores, args.forward.scale, args.forward.softcap);
        multiply_slopes(scores, args.forward.softcap, gradients);
        views.apply(first, scores);
        weigh_gradients(scores, gradients, [&](int i) { return units[i % 4 / 2]; });
        multiply_values<Number, kDepth>(gradients, shared.keys[side], width / 16, sums);
      }
      __syncthreads();  // it has been used
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto* dq = const_cast<float*>(queries.row_of(args.dq, args.forward.q_strides, row + i * 8));
      if (!dq) continue;
      store_row<kDepth>(FloatType::kF32, dq, 0, args.forward.shape.depth, sums, i, args.forward.scale);
    }
  }

  // The queries and their dy, which stay in registers.
  __device__ void load_own() {
    const int64_t count = queries.count() - queries.first, at = queries.index(0);
    copy_rows<kDepth, kTile>(shared.keys[0], packed.q + at * width, width, count);
    copy_rows<kDepth, kTile>(shared.values[0], packed.dy + at * value_width, value_width, count);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    load_queries<kDepth>(q, shared.keys[0], top, width / 16);
    load_queries<kDepth>(dy, shared.values[0], top, value_width / 16);
    __syncthreads();  // what follows takes their place
  }

  // Starts to copy the keys from `first` to `end`, those of a tile, and their values.
  __device__ void copy_tile(int first, int end, int side) {
    const AttentionShape& shape = args.forward.shape;
    if (first < end) {
      const int64_t at = (queries.batch * shape.kv_heads + queries.kv_head) * shape.keys + first;
      copy_rows<kDepth, kMet>(shared.keys[side], packed.k + at * width, width, end - first);
      copy_rows<kDepth, kMet>(shared.values[side], packed.v + at * value_width, value_width, end - first);
    }
    copy_commit();
  }
};

// dk and dv of 64 keys, which meet the queries of each head that reads them, from the first one that sees any
// of them. Queries are on their way while dy is multiplied, and dy while queries are.
template <typename Number, int kDepth>
struct KeyGradient {
  struct alignas(16) Shared {
    uint16_t keys[kTile * kDepth], values[kTile * kDepth], queries[kMet * kDepth], dy[kMet * kDepth];
  };

  const AttentionBackwardArgs& args;
  const PackedAttention& packed;
  const float* products;
  const int64_t kv_head, first_key;  // of all heads of all batches
  Shared& shared;
  const AttentionArgs& forward = args.forward;
  const AttentionShape& shape = forward.shape;
  const int group = static_cast<int>(shape.heads / shape.kv_heads);
  const int64_t begin =
      forward.causal ? max(int64_t{0}, min(shape.queries, first_key - forward.causal_offset)) : 0;
  const int tiles = static_cast<int>((shape.queries - begin + kMet - 1) / kMet);  // of each head
  const int width = static_cast<int>(packed_width(shape.depth));
  const int value_width = static_cast<int>(packed_width(shape.value_depth));
  const int top = threadIdx.x / 32 * 16;
  float dk[kDepth / 8][4] = {}, dv[kDepth / 8][4] = {};

  __device__ void run() {
    const int64_t at = kv_head * shape.keys + first_key, count = shape.keys - first_key;
    copy_rows<kDepth, kTile>(shared.keys, packed.k + at * width, width, count);
    copy_rows<kDepth, kTile>(shared.values, packed.v + at * value_width, value_width, count);
    const int end = group * tiles;
    copy_dy(0, end);
    copy_queries(0, end);
    for (int tile = 0; tile < end; ++tile) visit(tile, end);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t key = first_key + top + threadIdx.x % 32 / 4 + i * 8;
      if (key >= shape.keys) continue;
      const auto row_of = [&](float* data, const HeadStrides& strides) {
        return const_cast<float*>(
                   head_of(data, strides, kv_head / shape.kv_heads, kv_head % shape.kv_heads)) +
               key * strides.step;
      };
      if (args.dk) {
        store_row<kDepth>(FloatType::kF32, row_of(args.dk, forward.k_strides), 0, shape.depth, dk, i,
                          forward.scale);
      }
      if (args.dv) {
        store_row<kDepth>(FloatType::kF32, row_of(args.dv, forward.v_strides), 0, shape.value_depth, dv, i,
                          1);
      }
    }
  }

  __device__ int64_t first_query(int tile) const { return begin + tile % tiles * kMet; }
  // Of the rows of all heads of all batches.
  __device__ int64_t first_row(int tile) const {
    return (kv_head * group + tile / tiles) * shape.queries + first_query(tile);
  }

  __device__ void copy_queries(int tile, int end) {
    if (tile < end) {
      copy_rows<kDepth, kMet>(shared.queries, packed.q + first_row(tile) * width, width,
                              shape.queries - first_query(tile));
    }
    copy_commit();
  }
  __device__ void copy_dy(int tile, int end) {
    if (tile < end) {
      copy_rows<kDepth, kMet>(shared.dy, packed.dy + first_row(tile) * value_width, value_width,
                              shape.queries - first_query(tile));
    }
    copy_commit();
  }

  __device__ void visit(int tile, int end) {
    const int64_t first = first_query(tile), row = first_row(tile);
    const int64_t last = min(first + kMet, shape.queries) - 1, key = first_key + top;
    const bool seen = key < shape.keys && (!forward.causal || key <= last + forward.causal_offset);
    float scores[kMetBlocks][4] = {}, gradients[kMetBlocks][4], units[kMetBlocks * 2];
    if (seen) {
#pragma unroll
      for (int i = 0; i < kMetBlocks * 2; ++i) {
        const bool inside = first + key_of(i) < shape.queries;
        units[i] = inside ? forward.log_sum[row + key_of(i)] : INFINITY;
        const float product = inside ? products[row + key_of(i)] : 0;
        gradients[i / 2][i % 2] = gradients[i / 2][i % 2 + 2] = -product;
      }
#pragma unroll
      for (float& unit : units) unit = unit_of(unit);
    }
    copy_wait<1>();
    __syncthreads();  // dy is there
    if (seen) multiply_own(shared.values, shared.dy, value_width / 16, gradients);
    copy_wait<0>();
    __syncthreads();  // the queries are there
    if (seen) {
      multiply_own(shared.keys, shared.queries, width / 16, scores);
      scale_scores(scores, forward.scale, forward.softcap);
      multiply_slopes(scores, forward.softcap, gradients);
      apply_views(tile, scores);
      weigh_gradients(scores, gradients, [&](int i) { return units[i / 4 * 2 + i % 2]; });
      multiply_values<Number, kDepth>(scores, shared.dy, value_width / 16, dv);
    }
    __syncthreads();  // dy has been used
    copy_dy(tile + 1, end);
    if (seen) multiply_values<Number, kDepth>(gradients, shared.queries, width / 16, dk);
    __syncthreads();  // the queries have been used
    copy_queries(tile + 1, end);
  }

  // sums[16, kMet] += rows of the warp · othersᵀ
  __device__ void multiply_own(const uint16_t* rows, const uint16_t* others, int steps,
                               float (&sums)[kMetBlocks][4]) const {
    const int lane = threadIdx.x % 32;
    for (int k = 0; k < steps; ++k) {
      uint32_t a[4];
      load_matrices(a, rows + tile_offset<kDepth>(top + lane % 16, k * 2 + lane / 16));
      multiply_step<Number, kDepth>(a, others, k, sums);
    }
  }

  // Adds masks and hides the queries that do not see a key.
  __device__ void apply_views(int tile, float (&scores)[kMetBlocks][4]) const {
    const int64_t first = first_query(tile);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t key = first_key + top + threadIdx.x % 32 / 4 + i * 8;
      const int64_t hidden = forward.causal ? max(int64_t{0}, key - forward.causal_offset - first) : 0;
      const int from = static_cast<int>(min(int64_t{kMet}, hidden));
      if (forward.mask && key < shape.keys) {
        const int64_t head = kv_head % shape.kv_heads * group + tile / tiles,
                      step = forward.mask_strides.step;
        const float* mask =
            head_of(forward.mask, forward.mask_strides, kv_head / shape.kv_heads, head) + first * step + key;
        float added[kMetBlocks * 2];
#pragma unroll
        for (int j = 0; j < kMetBlocks * 2; ++j) {
          const bool inside = key_of(j) >= from && first + key_of(j) < shape.queries;
          added[j] = inside ? mask[key_of(j) * step] : 0;
        }
#pragma unroll
        for (int j = 0; j < kMetBlocks * 2; ++j) scores[j / 2][i * 2 + j % 2] += added[j] * kLog2e;
      }
      if (from > 0) hide_keys(scores, i, from, kMet);
    }
  }
};

template <typename Number, int kDepth>
__device__ void query_gradient(const AttentionBackwardArgs& args, const PackedAttention& packed,
                               const float* products, int64_t tiles) {
  __shared__ typename QueryGradient<Number, kDepth>::Shared shared;
  // Late rows, which see most keys, begin first.
  const int64_t head = blockIdx.x / tiles, tile = tiles - 1 - blockIdx.x % tiles;
  const Queries<kTile> queries(args.forward, tiles, head * tiles + tile);
  QueryGradient<Number, kDepth>{args, packed, products, queries, shared}.run();
}

template <typename Number, int kDepth>
__device__ void key_gradient(const AttentionBackwardArgs& args, const PackedAttention& packed,
                             const float* products, int64_t tiles) {
  __shared__ typename KeyGradient<Number, kDepth>::Shared shared;
  KeyGradient<Number, kDepth>{args, packed, products, blockIdx.x / tiles, blockIdx.x % tiles * kTile, shared}
      .run();
}

}  // namespace
}  // namespace spark

#define SPARK_ATTENTION_BACKWARD(number, Number, depth, blocks)                                         \
  extern "C" __global__ void __launch_bounds__(spark::attention_mma_block::kThreads, blocks)            \
      attention_query_gradient_##number##_##depth(spark::AttentionBackwardArgs args,                    \
                                                  spark::PackedAttention packed, const float* products, \
                                                  int64_t tiles) {                                      \
    spark::query_gradient<spark::Number, depth>(args, packed, products, tiles);                         \
  }                                                                                                     \
  extern "C" __global__ void __launch_bounds__(spark::attention_mma_block::kThreads, blocks)            \
      attention_key_gradient_##number##_##depth(spark::AttentionBackwardArgs args,                      \
                                                spark::PackedAttention packed, const float* products,   \
                                                int64_t tiles) {                                        \
    spark::key_gradient<spark::Number, depth>(args, packed, products, tiles);                           \
  }
#define SPARK_ATTENTION_BACKWARD_DEPTHS(number, Number)                               \
  extern "C" __global__ void attention_pack_##number(spark::AttentionPackArgs args) { \
    spark::pack<spark::Number>(args);                                                 \
  }                                                                                   \
  SPARK_ATTENTION_BACKWARD(number, Number, 64, 3)                                     \
  SPARK_ATTENTION_BACKWARD(number, Number, 128, 2)
SPARK_ATTENTION_BACKWARD_DEPTHS(bf16, BF16)
SPARK_ATTENTION_BACKWARD_DEPTHS(f16, F16)
