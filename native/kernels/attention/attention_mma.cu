// attention_mma.cu: attention_f32 of attention.cu on tensor cores. Queries, keys, values and the weights
// of the values are rounded to bf16, or to f16 in attention_f16_…; sums and the softmax are f32. …_64, …_128
// and …_256 take rows of up to so many numbers. A block has 64 rows of queries, 16 for each of its warps, and
// meets 64 keys at a time, or 32 in …_256, from key 0 on up to the last one that any of them sees. A row's
// result depends on its own query and mask and on the keys alone. Reference:
// native/backend/cpu/attention/attention.cc
#include "kernels/attention/row_views.cuh"

namespace spark {
namespace {

// Rows of a head of keys or values.
struct HeadRows {
  const float* data;
  int64_t step;
  int count;
  __device__ const float* operator()(int row) const { return row < count ? data + row * step : nullptr; }
};

// Rows of y from sums, two neighbours in a lane.
template <int kDepth>
__device__ void store_rows(const Queries<kTile>& queries, int top, const RowSums& rows,
                           const float (&sums)[kDepth / 8][4]) {
  const AttentionArgs& args = queries.args;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float total = row_sum(rows.total[i]);
    const int row = top + i * 8;
    if (!queries.has(row)) continue;
    store_row<kDepth>(args.y_dtype, args.y, queries.offset_of(args.y_strides, row), args.shape.value_depth,
                      sums, i, total == 0 ? 0 : 1 / total);
    if (args.log_sum && threadIdx.x % 4 == 0) {
      args.log_sum[queries.index(row)] = rows.largest[i] * kLn2 + logf(total);
    }
  }
}

template <typename Number, int kDepth>
__device__ void attention(const AttentionArgs& args, int64_t tiles) {
  __shared__ KeyTiles<kDepth> shared;
  constexpr int kKeys = kKeysOf<kDepth>;
  const Queries<kTile> queries(args, tiles, blockIdx.x);
  const AttentionShape& shape = args.shape;
  const int depth = static_cast<int>(shape.depth), value_depth = static_cast<int>(shape.value_depth);
  const int lane = threadIdx.x % 32, top = threadIdx.x / 32 * 16;
  const float* k = head_of(args.k, args.k_strides, queries.batch, queries.kv_head);
  const float* v = head_of(args.v, args.v_strides, queries.batch, queries.kv_head);
  load_rows<Number, kDepth, kTile>(shared.queries(), depth,
                                   [&](int row) { return queries.row_of(args.q, args.q_strides, row); });
  __syncthreads();
  uint32_t q[kDepth / 16][4];
  load_queries<kDepth>(q, shared.queries(), top, (depth + 15) / 16);
  const RowViews views(queries, top + lane / 4);
  RowSums rows;
  float sums[kDepth / 8][4] = {};
  const auto seen = static_cast<int>(queries.seen()), keys = static_cast<int>(shape.keys);
  for (int first = 0; first < seen; first += kKeys) {
    const int64_t k_step = args.k_strides.step, v_step = args.v_strides.step;
    __syncthreads();  // what was there has been used
    load_rows<Number, kDepth, kKeys>(shared.keys(), depth,
                                     HeadRows{k + first * k_step, k_step, keys - first});
    load_rows<Number, kDepth, kKeys>(shared.values(), value_depth,
                                     HeadRows{v + first * v_step, v_step, keys - first});
    __syncthreads();
    if (!queries.has(top)) continue;  // nor has any other row of the warp
    float scores[kKeys / 8][4] = {};
    multiply_keys<Number, kDepth>(q, shared.keys(), (depth + 15) / 16, scores);
    scale_scores(scores, args.scale, args.softcap);
    views.apply(first, scores);
    weigh(scores, rows, sums);
    multiply_values<Number, kDepth>(scores, shared.values(), (value_depth + 15) / 16, sums);
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
SPARK_DEFINE(bf16, BF16, 256, 2)
SPARK_DEFINE(f16, F16, 64, 3)
SPARK_DEFINE(f16, F16, 128, 2)
SPARK_DEFINE(f16, F16, 256, 2)
