// linear_blocks.cc: products of a weight in a block format with rows that are rounded to signed bytes.
#include "backend/cpu/gemm/linear_blocks.h"

#include <algorithm>
#include <vector>

#include "backend/block_formats.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kRows = 64;  // rows for which a panel is unpacked once

struct Rounded {
  int64_t cols, run, stride;
  std::vector<uint32_t> groups;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  Rounded(int64_t rows, const Weight& weight)
      : cols(weight.cols),
        run(run_cols(weight.dtype)),
        stride(cols / 4),
        groups(rows * stride),
        scales(rows * (cols / kIntegerCols)),
        sums(rows * (cols / run)) {}

  IntegerRows rows(int64_t row, int64_t count) const {
    return {count,
            &groups[row * stride],
            stride,
            &scales[row * (cols / kIntegerCols)],
            cols / kIntegerCols,
            &sums[row * (cols / run)],
            cols / run};
  }
};

Rounded round(const float* x, int64_t rows, const Weight& weight) {
  Rounded to(rows, weight);
  const int64_t cols = to.cols;
  parallel_for(rows, grain_for(cols, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels().gemm.round_integers(x + row * cols, cols, to.run, &to.groups[row * to.stride],
                                    &to.scales[row * (cols / kIntegerCols)], &to.sums[row * (cols / to.run)]);
    }
  });
  return to;
}

}  // namespace

void product_integer(int64_t rows, const float* x, const Weight& weight, Store store) {
  const Rounded rounded = round(x, rows, weight);
  const int64_t panels = (weight.rows + kPanelRows - 1) / kPanelRows, tiles = (rows + kRows - 1) / kRows;
  const int64_t grain = grain_for(weight.cols * kPanelRows * std::min(rows, kRows), 1 << 17);
  parallel_for(panels * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t panel = index / tiles, row = index % tiles * kRows, col = panel * kPanelRows;
      const int64_t count = std::min(kRows, rows - row);
      alignas(64) float sums[kRows * kPanelRows];
      kernels().dot.codes(weight, panel, rounded.rows(row, count), sums);
      for (int64_t i = 0; i < count; ++i) {
        store(row + i, col, std::min(kPanelRows, weight.rows - col), sums + i * kPanelRows);
      }
    }
  });
}

std::vector<float> rounded_to_integers(const float* x, int64_t count) {
  std::vector<float> result(count);
  for (int64_t i = 0; i < count; i += kIntegerCols) {
    const float scale = integer_scale(x + i);
    for (int64_t j = i; j < i + kIntegerCols; ++j)
      result[j] = scale * static_cast<float>(integer_code(x[j], scale));
  }
  return result;
}

}  // namespace spark::cpu
