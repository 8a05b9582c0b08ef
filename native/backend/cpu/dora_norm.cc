#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/dora.h"
#include "backend/cpu/product.h"
#include "backend/cpu/weight.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Below this share of its positive parts a factored norm² has lost too many digits.
constexpr double kCancelled = 1e-2;
// Outside of this range the squares themselves underflow or overflow in f32.
constexpr double kSmallest = 1e-30, kLargest = 1e30;

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
  const double scale = args.low_rank.scale;
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
  parallel_for(rows, 1 + (1 << 12) / (rank + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      double cross = 0, square = 0;
      for (int64_t r = 0; r < rank; ++r) {
        const int64_t at = row * rank + r;
        cross += static_cast<double>(ut[r * rows + row]) * b[at];
        square += static_cast<double>(bg[at]) * b[at];
      }
      const double positive = args.weight_norm2[row] + scale * scale * square;
      double norm2 = positive + 2 * scale * cross;
      const bool exact = norm2 >= kCancelled * positive && positive >= kSmallest && positive <= kLargest;
      if (!exact) norm2 = dense_norm2(args, row);
      args.norm[row] = static_cast<float>(std::sqrt(norm2));
      args.gain[row] = args.magnitude[row] / std::max(args.norm[row], kSmallestNorm);
    }
  });
}

}  // namespace spark::cpu
