// weight.cc: decoding of frozen weights to f32.
#include "backend/cpu/gemm/weight.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Σ values[j]² in double, as eight sums that take turns.
double sum_of_squares(const float* values, int64_t count) {
  constexpr int kSums = 8;
  double sums[kSums] = {};
  int64_t j = 0;
  for (; j + kSums <= count; j += kSums) {
    for (int i = 0; i < kSums; ++i) sums[i] += static_cast<double>(values[j + i]) * values[j + i];
  }
  for (; j < count; ++j) sums[0] += static_cast<double>(values[j]) * values[j];
  return std::accumulate(sums, sums + kSums, 0.0);
}

}  // namespace

void decode(const Weight& weight, int64_t row, int64_t rows, int64_t col, int64_t count, float* dst) {
  kernels().gemm.pack_rows(rows_of(weight), {row, rows, col, count}, dst);
}

void weight_norm2(const WeightNorm2Args& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  parallel_for(panels, grain_for(cols * kPanelRows, 1 << 16), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t row = panel * kPanelRows, height = std::min(kPanelRows, rows - row);
      float piece[kPanelRows * kLine];
      double sums[kPanelRows] = {};
      for (int64_t col = 0; col < cols; col += kChunk) {
        const int64_t count = std::min(kChunk, cols - col);
        decode(args.weight, row, height, col, count, piece);
        for (int64_t r = 0; r < height; ++r) sums[r] += sum_of_squares(piece + r * kLine, count);
      }
      for (int64_t r = 0; r < height; ++r) args.out[row + r] = static_cast<float>(sums[r]);
    }
  });
}

}  // namespace spark::cpu
