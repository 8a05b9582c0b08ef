// dora_norm.cc: row norms and gains of a DoRA weight.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/dora/dora.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/gemm/weight.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrainTerms = 1 << 12;  // products worth waking a thread for

// ‖W[row, :] + s·B[row, :]·A‖², in double.
double dense_norm2(const DoraNormArgs& args, int64_t row) {
  const auto& [rank, scale, a, b] = args.low_rank;
  const int64_t cols = args.weight.cols, in_panel = row % kPanelRows;
  float panel[kPanelRows * kLine];
  double v[kChunk];
  double sum = 0;
  for (int64_t col = 0; col < cols; col += kChunk) {
    const int64_t count = std::min(kChunk, cols - col);
    decode(args.weight, row - in_panel, in_panel + 1, col, count, panel);
    std::copy_n(panel + in_panel * kLine, count, v);
    for (int64_t r = 0; r < rank; ++r) {
      const double factor = static_cast<double>(scale) * b[row * rank + r];
      for (int64_t j = 0; j < count; ++j) v[j] += factor * a[r * cols + col + j];
    }
    for (int64_t j = 0; j < count; ++j) sum += v[j] * v[j];
  }
  return sum;
}

// norm and gain of a row from rowsum(U ∘ B) and rowsum((B·G) ∘ B).
void finish_row(const DoraNormArgs& args, int64_t row, double cross, double square) {
  const double scale = args.low_rank.scale;
  const double positive = args.weight_norm2[row] + scale * scale * square;
  double norm2 = positive + 2 * scale * cross;
  const bool exact =
      norm2 >= kCancelledShare * positive && positive >= kSmallestSquare && positive <= kLargestSquare;
  if (!exact) norm2 = dense_norm2(args, row);
  args.norm[row] = static_cast<float>(std::sqrt(norm2));
  args.gain[row] = args.magnitude[row] / std::max(args.norm[row], kSmallestNorm);
}

}  // namespace

std::vector<float> gram(const LowRank& low_rank, int64_t cols) {
  const int64_t rank = low_rank.rank;
  std::vector<float> g(rank * rank);
  product(rank, rank, {{rows_of(low_rank.a, cols), rows_of(low_rank.a, cols), cols}},
          [&](int64_t r, int64_t q, int64_t count, const float* sums) {
            std::copy_n(sums, count, g.data() + r * rank + q);
          });
  return g;
}

void dora_norm(const DoraNormArgs& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols, rank = args.low_rank.rank;
  const float *a = args.low_rank.a, *b = args.low_rank.b;
  const std::vector<float> g = gram(args.low_rank, cols);
  std::vector<float> ut(rank * rows), bg(rows * rank);  // (W·Aᵀ)ᵀ, of few rows and many lines, and B·G
  product(rank, rows, {{rows_of(a, cols), rows_of(args.weight), cols}},
          [&](int64_t r, int64_t row, int64_t count, const float* sums) {
            std::copy_n(sums, count, ut.data() + r * rows + row);
          });
  product(rows, rank, {{rows_of(b, rank), rows_of(g.data(), rank), rank}},
          [&](int64_t row, int64_t r, int64_t count, const float* sums) {
            std::copy_n(sums, count, bg.data() + row * rank + r);
          });
  const int64_t blocks = (rows + kPanelRows - 1) / kPanelRows;
  parallel_for(blocks, 1 + kGrainTerms / (kPanelRows * (rank + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kPanelRows, count = std::min(kPanelRows, rows - first);
      double cross[kPanelRows] = {}, square[kPanelRows] = {};
      for (int64_t r = 0; r < rank; ++r) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = (first + i) * rank + r;
          cross[i] += static_cast<double>(ut[r * rows + first + i]) * b[at];
          square[i] += static_cast<double>(bg[at]) * b[at];
        }
      }
      for (int64_t i = 0; i < count; ++i) finish_row(args, first + i, cross[i], square[i]);
    }
  });
}

}  // namespace spark::cpu
