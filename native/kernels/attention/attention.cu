// attention.cu: attention and its gradients, by the formulas of backend/network_args.h. A block has a tile of
// 16 rows (queries, or keys for dk and dv) and meets 64 columns (keys, or queries) at a time; scores never
// leave shared memory. Softmax is online: sums so far are scaled when a larger score comes. Sums are f32,
// over columns in order. Trap: a thread keeps its elements of the output in global memory between the blocks
// of columns; nobody else may. Reference: native/backend/cpu/attention/attention.cc, attention_backward.cc
#include "kernels/attention/attention.cuh"
#include "kernels/attention/tile.cuh"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

// to[e] = to[e] · factor + Σ_j weights[j] · from(j)[e] for the thread's share of a row: 16 threads have one.
template <typename From>
__device__ void add_columns(float* to, const float* weights, int count, int64_t width, float factor,
                            const From& from) {
  for (int64_t e = threadIdx.x % kRows; e < width; e += kRows) {
    float sum = 0;
    for (int j = 0; j < count; ++j) sum = fmaf(weights[j], from(j)[e], sum);
    to[e] = factor == 0 ? sum : fmaf(to[e], factor, sum);
  }
}

__device__ Score score(const AttentionArgs& args, float dot, int64_t batch, int64_t head, int64_t t,
                       int64_t s) {
  Score result = unmasked_score(args, dot);
  if (args.mask)
    result.value += head_of(args.mask, args.mask_strides, batch, head)[t * args.mask_strides.step + s];
  if (args.causal && s > t + args.causal_offset) result.value = -INFINITY;
  return result;
}

// e^(score − log_sum), 0 where nothing is visible.
__device__ float weight_of(float value, float log_sum) {
  return log_sum == -INFINITY ? 0 : expf(value - log_sum);
}

// Largest and sum of a row of scores become those of what was seen so far; scores become weights. A NaN stays
// one.
__device__ void weigh_rows(float (&weights)[kRows][kCols], float (&largest)[kRows], float (&total)[kRows],
                           float (&factor)[kRows]) {
  constexpr int kWarps = kThreads / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int row = threadIdx.x / kWarp; row < kRows; row += kWarps) {
    float best = fmaxf(weights[row][lane], weights[row][lane + kWarp]);
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFF, best, offset));
    }
    const float before = largest[row], now = fmaxf(before, best), unit = now == -INFINITY ? 0 : now;
    float sum = 0;
    for (int j = lane; j < kCols; j += kWarp) {
      weights[row][j] = expf(weights[row][j] - unit);
      sum += weights[row][j];
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset);
    const float scale = expf(before - unit);
    __syncwarp();  // all lanes have read what is written now
    if (lane == 0) {
      factor[row] = scale;
      total[row] = total[row] * scale + sum;
      largest[row] = now;
    }
  }
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::attention_block::kThreads)
    attention_f32(spark::AttentionArgs args, int tiles) {
  using namespace spark;
  __shared__ float weights[kRows][kCols], largest[kRows], total[kRows], factor[kRows];
  const Queries<kRows, int> queries(args, tiles, blockIdx.x);
  const float* keys = head_of(args.k, args.k_strides, queries.batch, queries.kv_head);
  const float* values = head_of(args.v, args.v_strides, queries.batch, queries.kv_head);
  if (threadIdx.x < kRows) {
    largest[threadIdx.x] = -INFINITY;
    total[threadIdx.x] = 0;
  }
  const int own = threadIdx.x / kRows, col = threadIdx.x % kCols;
  float* y = const_cast<float*>(queries.row_of(static_cast<const float*>(args.y), args.y_strides, own));
  const int seen = static_cast<int>(queries.seen());
  for (int first = 0; first < seen; first += kCols) {
    const int count = min(kCols, seen - first);
    float dots[kDots];
    multiply([&](int row) { return queries.row_of(args.q, args.q_strides, row); },
             [&](int j) { return j < count ? keys + (first + j) * args.k_strides.step : nullptr; },
             args.shape.depth, dots);
    for (int i = 0; i < kDots; ++i) {
      const int row = threadIdx.x / kCols + i * kStep;
      weights[row][col] =
          queries.has(row) && col < count
              ? score(args, dots[i], queries.batch, queries.head(row), queries.query(row), first + col).value
              : -INFINITY;
    }
    __syncthreads();
    weigh_rows(weights, largest, total, factor);
    __syncthreads();
    if (!y) continue;
    add_columns(y, weights[own], count, args.shape.value_depth, first == 0 ? 0 : factor[own],
                [&](int j) { return values + (first + j) * args.v_strides.step; });
  }
  __syncthreads();
  if (!y) return;
  const float sum = total[own];
  for (int64_t e = threadIdx.x % kRows; e < args.shape.value_depth; e += kRows)
    y[e] = sum == 0 ? 0 : y[e] / sum;
  if (args.log_sum && threadIdx.x % kRows == 0) args.log_sum[queries.index(own)] = largest[own] + logf(sum);
}

// products[b, h, t] = dy · y, a warp for each.
extern "C" __global__ void attention_products_f32(spark::AttentionArgs args, const float* dy,
                                                  float* products) {
  using spark::kWarp;
  constexpr int kAhead = 4;  // elements of each whose loads are under way
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp, head = at / args.shape.queries;
  if (head >= args.shape.batch * args.shape.heads) return;
  const int64_t offset = head / args.shape.heads * args.y_strides.batch +
                         head % args.shape.heads * args.y_strides.head +
                         at % args.shape.queries * args.y_strides.step;
  const float *left = dy + offset, *right = static_cast<const float*>(args.y) + offset;
  float sum = 0;
  for (int64_t first = threadIdx.x % kWarp; first < args.shape.value_depth; first += kAhead * kWarp) {
    float a[kAhead], b[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const bool inside = first + i * kWarp < args.shape.value_depth;
      a[i] = inside ? left[first + i * kWarp] : 0;
      b[i] = inside ? right[first + i * kWarp] : 0;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum = fmaf(a[i], b[i], sum);
  }
  for (int lane = kWarp / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, lane);
  if (threadIdx.x % kWarp == 0) products[at] = sum;
}

// dq: a tile of queries meets the keys that causality lets any of them see.
extern "C" __global__ void __launch_bounds__(spark::attention_block::kThreads)
    attention_query_gradient_f32(spark::AttentionBackwardArgs args, const float* products, int tiles) {
  using namespace spark;
  __shared__ float gradients[kRows][kCols];
  const AttentionArgs& forward = args.forward;
  const Queries<kRows, int> queries(forward, tiles, blockIdx.x);
  const float* keys = head_of(forward.k, forward.k_strides, queries.batch, queries.kv_head);
  const float* values = head_of(forward.v, forward.v_strides, queries.batch, queries.kv_head);
  const int own = threadIdx.x / kRows, col = threadIdx.x % kCols;
  float* dq = const_cast<float*>(queries.row_of(args.dq, forward.q_strides, own));
  const int seen = static_cast<int>(queries.seen()), key_count = static_cast<int>(forward.shape.keys);
  for (int first = 0; first < seen; first += kCols) {
    const int count = min(kCols, key_count - first);
    float dots[kDots], weight_gradients[kDots];
    multiply([&](int row) { return queries.row_of(forward.q, forward.q_strides, row); },
             [&](int j) { return j < count ? keys + (first + j) * forward.k_strides.step : nullptr; },
             forward.shape.depth, dots);
    multiply([&](int row) { return queries.row_of(args.dy, forward.y_strides, row); },
             [&](int j) { return j < count ? values + (first + j) * forward.v_strides.step : nullptr; },
             forward.shape.value_depth, weight_gradients);
    for (int i = 0; i < kDots; ++i) {
      const int row = threadIdx.x / kCols + i * kStep;
      gradients[row][col] = 0;
      if (!queries.has(row) || col >= count) continue;
      const int64_t at = queries.index(row);
      const Score w =
          score(forward, dots[i], queries.batch, queries.head(row), queries.query(row), first + col);
      const float weight = weight_of(w.value, forward.log_sum[at]);
      gradients[row][col] = weight * (weight_gradients[i] - products[at]) * w.slope * forward.scale;
    }
    __syncthreads();
    if (!dq) continue;
    add_columns(dq, gradients[own], count, forward.shape.depth, first == 0 ? 0 : 1,
                [&](int j) { return keys + (first + j) * forward.k_strides.step; });
  }
  if (!dq || seen > 0) return;
  for (int64_t d = threadIdx.x % kRows; d < forward.shape.depth; d += kRows) dq[d] = 0;
}

// dk and dv: a tile of keys meets the queries of all heads that read them, in tiles any of which sees one.
extern "C" __global__ void __launch_bounds__(spark::attention_block::kThreads)
    attention_key_gradient_f32(spark::AttentionBackwardArgs args, const float* products, int tiles) {
  using namespace spark;
  __shared__ float weights[kRows][kCols], gradients[kRows][kCols];
  const AttentionArgs& forward = args.forward;
  const AttentionShape& shape = forward.shape;
  const int block = blockIdx.x, head = block / tiles, first_key = block % tiles * kRows;
  const Queries<kRows, int> all(forward, 1, head);
  const auto row_of = [&](const float* data, const HeadStrides& strides, int row) -> const float* {
    if (first_key + row >= shape.keys) return nullptr;
    return head_of(data, strides, all.batch, all.kv_head) + (first_key + row) * strides.step;
  };
  const int own = threadIdx.x / kRows, col = threadIdx.x % kCols;
  float* dk = args.dk ? const_cast<float*>(row_of(args.dk, forward.k_strides, own)) : nullptr;
  float* dv = args.dv ? const_cast<float*>(row_of(args.dv, forward.v_strides, own)) : nullptr;
  float factor = 0;  // of what was summed before
  for (int first = 0; first < all.count(); first += kCols) {
    const int count = min(kCols, all.count() - first);
    if (all.seen(first, first + count) <= first_key) continue;
    float dots[kDots], weight_gradients[kDots];
    multiply([&](int row) { return row_of(forward.k, forward.k_strides, row); },
             [&](int j) { return all.row_of(forward.q, forward.q_strides, first + j); }, shape.depth, dots);
    multiply([&](int row) { return row_of(forward.v, forward.v_strides, row); },
             [&](int j) { return all.row_of(args.dy, forward.y_strides, first + j); }, shape.value_depth,
             weight_gradients);
    for (int i = 0; i < kDots; ++i) {
      const int row = threadIdx.x / kCols + i * kStep;
      weights[row][col] = gradients[row][col] = 0;
      if (col >= count || first_key + row >= shape.keys) continue;
      const int64_t index = all.index(first + col);
      const Score w =
          score(forward, dots[i], all.batch, all.head(first + col), all.query(first + col), first_key + row);
      const float weight = weight_of(w.value, forward.log_sum[index]);
      weights[row][col] = weight;
      gradients[row][col] = weight * (weight_gradients[i] - products[index]) * w.slope * forward.scale;
    }
    __syncthreads();
    if (dv) {
      add_columns(dv, weights[own], count, shape.value_depth, factor,
                  [&](int j) { return all.row_of(args.dy, forward.y_strides, first + j); });
    }
    if (dk) {
      add_columns(dk, gradients[own], count, shape.depth, factor,
                  [&](int j) { return all.row_of(forward.q, forward.q_strides, first + j); });
    }
    factor = 1;
  }
  if (factor == 1) return;
  for (int64_t e = threadIdx.x % kRows; dv && e < shape.value_depth; e += kRows) dv[e] = 0;
  for (int64_t d = threadIdx.x % kRows; dk && d < shape.depth; d += kRows) dk[d] = 0;
}
