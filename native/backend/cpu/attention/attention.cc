// attention.cc: attention forward in one pass (FlashAttention): online softmax over tiles of keys.
#include <algorithm>
#include <cmath>

#include "backend/cpu/attention/attention_tiles.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

// Some of the queries that meet one head of keys: those of all its heads lie behind each other.
class Tile {
 public:
  Tile(const AttentionArgs& args, int64_t index, int64_t tiles, float* workspace)
      : args_(args), shape_(args.shape), kernels_(kernels().rows) {
    const int64_t head = index / tiles, tile = index % tiles;
    const int64_t all = shape_.heads / shape_.kv_heads * shape_.queries;
    batch_ = head / shape_.kv_heads;
    kv_head_ = head % shape_.kv_heads;
    first_ = tile * all / tiles;
    rows_ = (tile + 1) * all / tiles - first_;
    queries_ = workspace;
    scores_ = queries_ + left_floats(shape_.depth);
    weights_ = scores_ + sums_floats(kBlock);
    out_ = weights_ + left_floats(kBlock);
    panel_ = out_ + sums_floats(shape_.value_depth);
  }

  static int64_t workspace_floats(const AttentionShape& shape) {
    return left_floats(shape.depth) + sums_floats(kBlock) + left_floats(kBlock) +
           sums_floats(shape.value_depth) + kPanelFloats;
  }

  void run() {
    const float* keys = head_of(args_.k, args_.k_strides, batch_, kv_head_);
    const float* values = head_of(args_.v, args_.v_strides, batch_, kv_head_);
    int64_t visible = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      put_row(head_of(args_.q, args_.q_strides, batch_, head(row)) + query(row) * args_.q_strides.step,
              shape_.depth, row, queries_);
      max_[row] = -kInfinity;
      sum_[row] = 0;
      visible = std::max(visible, visible_keys(row));
    }
    for (int64_t e = 0; e < shape_.value_depth; e += kTile) {
      const int64_t panels = (std::min(kTile, shape_.value_depth - e) + kPanelRows - 1) / kPanelRows;
      for (int64_t row = 0; row < rows_; ++row)
        std::fill_n(sums_at(out_, row, e / kTile), panels * kPanelRows, 0.0f);
    }
    for (int64_t s = 0; s < visible; s += kBlock) {
      const int64_t count = std::min(kBlock, visible - s);
      const HeadRows some_keys = {
          .data = keys, .step = args_.k_strides.step, .first = s, .count = count, .width = shape_.depth};
      const HeadRows some_values = {.data = values,
                                    .step = args_.v_strides.step,
                                    .first = s,
                                    .count = count,
                                    .width = shape_.value_depth};
      multiply_rows(queries_, rows_, some_keys, panel_, scores_);
      for (int64_t row = 0; row < rows_; ++row) weigh(row, s, count);
      multiply_columns(weights_, rows_, some_values, panel_, out_);
    }
    for (int64_t row = 0; row < rows_; ++row) store(row);
  }

 private:
  int64_t head(int64_t row) const {
    return kv_head_ * (shape_.heads / shape_.kv_heads) + (first_ + row) / shape_.queries;
  }
  int64_t query(int64_t row) const { return (first_ + row) % shape_.queries; }
  int64_t visible_keys(int64_t row) const {
    if (!args_.causal) return shape_.keys;
    return std::clamp<int64_t>(query(row) + args_.causal_offset + 1, 0, shape_.keys);
  }

  // The scores of a row with keys [s, s + count) become weights in units of e^max, and what was summed
  // before changes to the same unit.
  void weigh(int64_t row, int64_t s, int64_t count) {
    float* scores = scores_ + row * kTile;
    float* weights = weights_ + row * kLine;
    const int64_t seen = std::clamp<int64_t>(visible_keys(row) - s, 0, count);
    const float* mask = nullptr;
    if (args_.mask) {
      mask = head_of(args_.mask, args_.mask_strides, batch_, head(row)) +
             query(row) * args_.mask_strides.step + s;
    }
    float scale = args_.scale;
    if (args_.softcap != 0) {
      scale_scores(args_, seen, scores, nullptr);
      scale = 1;
    }
    const float max = std::max(max_[row], kernels_.scores(scores, seen, scale, mask));
    if (s == 0) max_[row] = max;
    if (max > max_[row]) {
      const float factor = std::exp(max_[row] - max);
      sum_[row] *= factor;
      for (int64_t e = 0; e < shape_.value_depth; e += kTile) {
        float* out = sums_at(out_, row, e / kTile);
        kernels_.affine(out, std::min(kTile, shape_.value_depth - e), factor, 0, out);
      }
      max_[row] = max;
    }
    sum_[row] += kernels_.exponentials(scores, seen, max == -kInfinity ? 0 : max, weights);
    std::fill(weights + seen, weights + count, 0.0f);
  }

  void store(int64_t row) {
    float* y = static_cast<float*>(args_.y) + batch_ * args_.y_strides.batch +
               head(row) * args_.y_strides.head + query(row) * args_.y_strides.step;
    const float factor = sum_[row] == 0 ? 0 : 1 / sum_[row];
    for (int64_t e = 0; e < shape_.value_depth; e += kTile) {
      kernels_.affine(sums_at(out_, row, e / kTile), std::min(kTile, shape_.value_depth - e), factor, 0,
                      y + e);
    }
    if (args_.log_sum) {
      const int64_t at = (batch_ * shape_.heads + head(row)) * shape_.queries + query(row);
      args_.log_sum[at] = sum_[row] == 0 ? -kInfinity : max_[row] + std::log(sum_[row]);
    }
  }

  const AttentionArgs& args_;
  const AttentionShape& shape_;
  const RowKernels& kernels_;
  int64_t batch_, kv_head_, first_, rows_;
  float *queries_, *scores_, *weights_, *out_, *panel_;
  float max_[kTileRows], sum_[kTileRows];
};

}  // namespace

void attention(const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  if (shape.heads == 0) return;
  const int64_t queries = shape.heads / shape.kv_heads * shape.queries;
  const int64_t tiles = (queries + kTileRows - 1) / kTileRows;
  parallel_tasks(shape.batch * shape.kv_heads * tiles, Tile::workspace_floats(shape),
                 [&](int64_t index, float* workspace) { Tile(args, index, tiles, workspace).run(); });
}

}  // namespace spark::cpu
