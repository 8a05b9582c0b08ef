#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "backend/cpu/weight.h"

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

}  // namespace

void dora_merge(const DoraMergeArgs& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  low_rank_product(args.low_rank, rows, cols, [&](int64_t o, int64_t i, int64_t count, const float* delta) {
    thread_local float piece[kPanelRows * kLine];
    const int64_t row = o % kPanelRows;
    if (row == 0) decode(args.weight, o, std::min(kPanelRows, rows - o), i, count, piece);
    const float* weight = piece + row * kLine;
    float* merged = args.merged + o * cols + i;
    for (int64_t j = 0; j < count; ++j) merged[j] = args.gain[o] * (weight[j] + delta[j]);
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
