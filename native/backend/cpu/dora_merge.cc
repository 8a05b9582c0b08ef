#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "backend/cpu/weight.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Hands scale · (B·A)[row, col .. col + count) to `store`, piece by piece.
void low_rank_product(const LowRank& low_rank, int64_t rows, int64_t cols, const Store& store) {
  const std::vector<float> scale(low_rank.rank, low_rank.scale);
  product(rows, cols,
          {{scaled(rows_of(low_rank.b, low_rank.rank), scale.data()), columns_of(low_rank.a, cols),
            low_rank.rank}},
          store);
}

// row[i] += scale · (B·A)[o, i]
void add_low_rank(const LowRank& low_rank, int64_t o, int64_t cols, float* row) {
  for (int64_t r = 0; r < low_rank.rank; ++r) {
    const float factor = low_rank.scale * low_rank.b[o * low_rank.rank + r];
    for (int64_t i = 0; i < cols; ++i) row[i] += factor * low_rank.a[r * cols + i];
  }
}

}  // namespace

void dora_merge(const DoraMergeArgs& args) {
  const int64_t cols = args.weight.cols;
  low_rank_product(args.low_rank, args.weight.rows, cols,
                   [&](int64_t o, int64_t i, int64_t count, const float* delta) {
                     float* merged = args.merged + o * cols + i;
                     decode(args.weight, o, i, count, merged);
                     for (int64_t j = 0; j < count; ++j) merged[j] = args.gain[o] * (merged[j] + delta[j]);
                   });
}

void dora_merge_backward(const DoraMergeBackwardArgs& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols, rank = args.low_rank.rank;
  const float scale = args.low_rank.scale;
  parallel_for(rows, 1 + (1 << 14) / (cols * (rank + 2) + 1), [&](int64_t begin, int64_t end) {
    std::vector<float> v(cols);
    for (int64_t o = begin; o < end; ++o) {
      decode(args.weight, o, 0, cols, v.data());
      add_low_rank(args.low_rank, o, cols, v.data());
      const float* dmerged = args.dmerged + o * cols;
      double sum = 0;
      for (int64_t i = 0; i < cols; ++i) sum += static_cast<double>(dmerged[i]) * v[i];
      const double norm = std::max(args.norm[o], 1e-12f);
      args.dmagnitude[o] = static_cast<float>(sum / norm);
      const float radial = args.exact_norm ? static_cast<float>(sum / (norm * norm)) : 0;
      for (int64_t i = 0; i < cols; ++i) args.dv[o * cols + i] = args.gain[o] * (dmerged[i] - radial * v[i]);
    }
  });
  product(rank, cols, {{columns_of(args.low_rank.b, rank), columns_of(args.dv, cols), rows}},
          [&](int64_t r, int64_t i, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.da[r * cols + i + j] = scale * sums[j];
          });
  product(rows, rank, {{rows_of(args.dv, cols), rows_of(args.low_rank.a, cols), cols}},
          [&](int64_t o, int64_t r, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.db[o * rank + r + j] = scale * sums[j];
          });
}

void dora_unmerge(const DoraUnmergeArgs& args) {
  low_rank_product(args.low_rank, args.rows, args.cols,
                   [&](int64_t o, int64_t i, int64_t count, const float* delta) {
                     const int64_t at = o * args.cols + i;
                     for (int64_t j = 0; j < count; ++j) {
                       args.restored[at + j] = args.merged[at + j] / args.gain[o] - delta[j];
                     }
                   });
}

}  // namespace spark::cpu
