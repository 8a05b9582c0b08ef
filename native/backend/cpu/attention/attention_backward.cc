// attention_backward.cc: gradients of attention; softmax weights are recomputed from q, k and log_sum.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/attention/attention_tiles.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

// Sizes and places that both passes need. Weights are computed again from q, k and log_sum.
struct Gradient {
  const AttentionBackwardArgs& args;
  const AttentionArgs& forward;
  const AttentionShape& shape;
  const float* product;  // [B, H, T]: dy · y

  int64_t group() const { return shape.heads / shape.kv_heads; }
  int64_t row(int64_t batch, int64_t head, int64_t query) const {
    return (batch * shape.heads + head) * shape.queries + query;
  }
  // What the scores of a query are shifted by, so that e^ of them is its weights.
  float shift(int64_t at) const {
    const float log_sum = forward.log_sum[at];
    return log_sum == -kInfinity ? kInfinity : log_sum;  // nothing visible: no weight
  }
  const float* mask(int64_t batch, int64_t head, int64_t query) const {
    if (!forward.mask) return nullptr;
    return head_of(forward.mask, forward.mask_strides, batch, head) + query * forward.mask_strides.step;
  }
};

// Stores a row of sums.
void store_row(float* sums, int64_t row, int64_t width, float factor, float* to) {
  for (int64_t e = 0; e < width; e += kTile) {
    kernels().rows.affine(sums_at(sums, row, e / kTile), std::min(kTile, width - e), factor, 0, to + e);
  }
}

// dq of queries [first, first + rows) of a head.
class QueryTile {
 public:
  QueryTile(const Gradient& gradient, int64_t batch, int64_t head, int64_t first, int64_t rows,
            float* workspace)
      : at_(gradient), batch_(batch), head_(head), first_(first), rows_(rows) {
    queries_ = workspace;
    gradients_ = queries_ + left_floats(at_.shape.depth);
    scores_ = gradients_ + left_floats(at_.shape.value_depth);
    weight_gradients_ = scores_ + sums_floats(kBlock);
    left_ = weight_gradients_ + sums_floats(kBlock);
    sums_ = left_ + left_floats(kBlock);
    panel_ = sums_ + sums_floats(at_.shape.depth);
  }

  static int64_t workspace_floats(const AttentionShape& shape) {
    return left_floats(shape.depth) + left_floats(shape.value_depth) + 2 * sums_floats(kBlock) +
           left_floats(kBlock) + sums_floats(shape.depth) + kPanelFloats;
  }

  void run() {
    const AttentionArgs& forward = at_.forward;
    const int64_t kv_head = head_ / at_.group(), step = forward.q_strides.step;
    const float* keys = head_of(forward.k, forward.k_strides, batch_, kv_head);
    const float* values = head_of(forward.v, forward.v_strides, batch_, kv_head);
    put_rows(head_of(forward.q, forward.q_strides, batch_, head_) + first_ * step, step, rows_,
             at_.shape.depth, queries_);
    const int64_t y_step = forward.y_strides.step;
    put_rows(head_of(at_.args.dy, forward.y_strides, batch_, head_) + first_ * y_step, y_step, rows_,
             at_.shape.value_depth, gradients_);
    std::fill_n(sums_, sums_floats(at_.shape.depth), 0.0f);
    const int64_t visible = visible_keys(rows_ - 1);
    for (int64_t s = 0; s < visible; s += kBlock) {
      const int64_t count = std::min(kBlock, visible - s);
      const HeadRows some_keys = {
          .data = keys, .step = forward.k_strides.step, .first = s, .count = count, .width = at_.shape.depth};
      const HeadRows some_values = {.data = values,
                                    .step = forward.v_strides.step,
                                    .first = s,
                                    .count = count,
                                    .width = at_.shape.value_depth};
      multiply_rows(queries_, rows_, some_keys, panel_, scores_);
      multiply_rows(gradients_, rows_, some_values, panel_, weight_gradients_);
      for (int64_t row = 0; row < rows_; ++row) score_gradient(row, s, count);
      multiply_columns(left_, rows_, some_keys, panel_, sums_);
    }
    float* dq = at_.args.dq + (head_of(forward.q, forward.q_strides, batch_, head_) - forward.q);
    for (int64_t row = 0; row < rows_; ++row) {
      store_row(sums_, row, at_.shape.depth, forward.scale, dq + (first_ + row) * step);
    }
  }

 private:
  int64_t visible_keys(int64_t row) const {
    if (!at_.forward.causal) return at_.shape.keys;
    return std::clamp<int64_t>(first_ + row + at_.forward.causal_offset + 1, 0, at_.shape.keys);
  }

  // left = weight · (its gradient − dy·y) · slope of the soft cap, for the keys [s, s + count).
  void score_gradient(int64_t row, int64_t s, int64_t count) {
    float* scores = scores_ + row * kTile;
    float* left = left_ + row * kLine;
    const float* weight_gradients = weight_gradients_ + row * kTile;
    const int64_t seen = std::clamp<int64_t>(visible_keys(row) - s, 0, count);
    const int64_t at = at_.row(batch_, head_, first_ + row);
    float slopes[kBlock];
    scale_scores(at_.forward, seen, scores, slopes);
    if (const float* mask = at_.mask(batch_, head_, first_ + row)) {
      for (int64_t j = 0; j < seen; ++j) scores[j] += mask[s + j];
    }
    kernels().rows.exponentials(scores, seen, at_.shift(at), scores);
    for (int64_t j = 0; j < seen; ++j) {
      left[j] = scores[j] * (weight_gradients[j] - at_.product[at]) * slopes[j];
    }
    std::fill(left + seen, left + count, 0.0f);
  }

  const Gradient& at_;
  int64_t batch_, head_, first_, rows_;
  float *queries_, *gradients_, *scores_, *weight_gradients_, *left_, *sums_, *panel_;
};

// dk and dv of keys [first, first + rows) of a head of keys.
class KeyTile {
 public:
  KeyTile(const Gradient& gradient, int64_t batch, int64_t kv_head, int64_t first, int64_t rows,
          float* workspace)
      : at_(gradient), batch_(batch), kv_head_(kv_head), first_(first), rows_(rows) {
    keys_ = workspace;
    values_ = keys_ + left_floats(at_.shape.depth);
    scores_ = values_ + left_floats(at_.shape.value_depth);
    weight_gradients_ = scores_ + sums_floats(kBlock);
    weights_ = weight_gradients_ + sums_floats(kBlock);
    left_ = weights_ + left_floats(kBlock);
    dk_ = left_ + left_floats(kBlock);
    dv_ = dk_ + sums_floats(at_.shape.depth);
    panel_ = dv_ + sums_floats(at_.shape.value_depth);
  }

  static int64_t workspace_floats(const AttentionShape& shape) {
    return left_floats(shape.depth) + left_floats(shape.value_depth) + 2 * sums_floats(kBlock) +
           2 * left_floats(kBlock) + sums_floats(shape.depth) + sums_floats(shape.value_depth) + kPanelFloats;
  }

  void run() {
    const AttentionArgs& forward = at_.forward;
    const int64_t k_step = forward.k_strides.step, v_step = forward.v_strides.step;
    const float* keys = head_of(forward.k, forward.k_strides, batch_, kv_head_) + first_ * k_step;
    const float* values = head_of(forward.v, forward.v_strides, batch_, kv_head_) + first_ * v_step;
    put_rows(keys, k_step, rows_, at_.shape.depth, keys_);
    put_rows(values, v_step, rows_, at_.shape.value_depth, values_);
    std::fill_n(dk_, sums_floats(at_.shape.depth), 0.0f);
    std::fill_n(dv_, sums_floats(at_.shape.value_depth), 0.0f);
    for (int64_t head = kv_head_ * at_.group(); head < (kv_head_ + 1) * at_.group(); ++head) {
      const int64_t from = forward.causal ? std::max<int64_t>(0, first_ - forward.causal_offset) : 0;
      for (int64_t t = from / kBlock * kBlock; t < at_.shape.queries; t += kBlock) meet(head, t);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      if (at_.args.dk) {
        store_row(dk_, row, at_.shape.depth, forward.scale, at_.args.dk + (keys - forward.k) + row * k_step);
      }
      if (at_.args.dv) {
        store_row(dv_, row, at_.shape.value_depth, 1, at_.args.dv + (values - forward.v) + row * v_step);
      }
    }
  }

 private:
  // Adds what the queries [t, t + kBlock) of a head bring.
  void meet(int64_t head, int64_t t) {
    const AttentionArgs& forward = at_.forward;
    const int64_t count = std::min(kBlock, at_.shape.queries - t);
    const float* queries = head_of(forward.q, forward.q_strides, batch_, head);
    const float* gradients = head_of(at_.args.dy, forward.y_strides, batch_, head);
    const HeadRows some_queries = {.data = queries,
                                   .step = forward.q_strides.step,
                                   .first = t,
                                   .count = count,
                                   .width = at_.shape.depth};
    const HeadRows some_gradients = {.data = gradients,
                                     .step = forward.y_strides.step,
                                     .first = t,
                                     .count = count,
                                     .width = at_.shape.value_depth};
    multiply_rows(keys_, rows_, some_queries, panel_, scores_);
    multiply_rows(values_, rows_, some_gradients, panel_, weight_gradients_);
    for (int64_t row = 0; row < rows_; ++row) score_gradient(row, head, t, count);
    multiply_columns(weights_, rows_, some_gradients, panel_, dv_);
    multiply_columns(left_, rows_, some_queries, panel_, dk_);
  }

  // The weights of a key for the queries [t, t + count), and left as in QueryTile.
  void score_gradient(int64_t row, int64_t head, int64_t t, int64_t count) {
    const AttentionArgs& forward = at_.forward;
    float *scores = scores_ + row * kTile, *weights = weights_ + row * kLine, *left = left_ + row * kLine;
    const float* weight_gradients = weight_gradients_ + row * kTile;
    const int64_t key = first_ + row;
    const int64_t hidden =
        forward.causal ? std::clamp<int64_t>(key - forward.causal_offset - t, 0, count) : 0;
    float slopes[kBlock];
    scale_scores(forward, count, scores, slopes);
    for (int64_t j = 0; j < count; ++j) {
      if (const float* mask = at_.mask(batch_, head, t + j)) scores[j] += mask[key];
      scores[j] -= at_.shift(at_.row(batch_, head, t + j));
    }
    kernels().rows.exponentials(scores, count, 0, weights);
    std::fill_n(weights, hidden, 0.0f);
    for (int64_t j = 0; j < count; ++j) {
      left[j] = weights[j] * (weight_gradients[j] - at_.product[at_.row(batch_, head, t + j)]) * slopes[j];
    }
  }

  const Gradient& at_;
  int64_t batch_, kv_head_, first_, rows_;
  float *keys_, *values_, *scores_, *weight_gradients_, *weights_, *left_, *dk_, *dv_, *panel_;
};

// dy · y of every query.
std::vector<float> products(const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const AttentionShape& shape = forward.shape;
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  const auto* outputs = static_cast<const float*>(forward.y);
  std::vector<float> result(rows);
  parallel_for(rows, grain_for(shape.value_depth, 1 << 12), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t head = at / shape.queries;
      const float* y = head_of(outputs, forward.y_strides, head / shape.heads, head % shape.heads) +
                       at % shape.queries * forward.y_strides.step;
      result[at] = kernels().rows.dot(args.dy + (y - outputs), y, shape.value_depth);
    }
  });
  return result;
}

// run(batch, head, first, rows, workspace) for tiles of at most kTileRows of `length` rows of each head.
template <typename Run>
void for_each_tile(int64_t batch, int64_t heads, int64_t length, int64_t floats, const Run& run) {
  const int64_t tiles = (length + kTileRows - 1) / kTileRows;
  parallel_tasks(batch * heads * tiles, floats, [&](int64_t index, float* workspace) {
    const int64_t head = index / tiles, first = index % tiles * length / tiles;
    run(head / heads, head % heads, first, (index % tiles + 1) * length / tiles - first, workspace);
  });
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.forward.shape;
  const std::vector<float> product = products(args);
  const Gradient gradient{args, args.forward, shape, product.data()};
  if (args.dq) {
    for_each_tile(shape.batch, shape.heads, shape.queries, QueryTile::workspace_floats(shape),
                  [&](int64_t batch, int64_t head, int64_t first, int64_t rows, float* workspace) {
                    QueryTile(gradient, batch, head, first, rows, workspace).run();
                  });
  }
  if (args.dk || args.dv) {
    for_each_tile(shape.batch, shape.kv_heads, shape.keys, KeyTile::workspace_floats(shape),
                  [&](int64_t batch, int64_t head, int64_t first, int64_t rows, float* workspace) {
                    KeyTile(gradient, batch, head, first, rows, workspace).run();
                  });
  }
}

}  // namespace spark::cpu
