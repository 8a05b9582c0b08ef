// linear_blocks.cc: products of a weight in a block format with rows that are rounded to signed bytes.
#include "backend/cpu/gemm/linear_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/block_formats.h"
#include "backend/cpu/gemm/dot_gemm.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/per_thread.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kSumCols = 16;  // columns whose bytes are summed: the shortest run of a format
constexpr int64_t kRows = 32;     // rows for which a panel is unpacked once

// Rows of x as bytes, in dot-product groups; scales of kIntegerCols columns and sums of kSumCols.
struct Rounded {
  int64_t stride;
  std::vector<uint32_t> groups;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  Rounded(int64_t rows, int64_t cols)
      : stride(padded_dot_groups(cols / 4)),
        groups(rows * stride),
        scales(rows * (cols / kIntegerCols)),
        sums(rows * (cols / kSumCols)) {}
};

// kIntegerCols numbers as bytes, and their scale.
float round_block(const float* x, int8_t* bytes, int32_t* sums) {
  const float scale = integer_scale(x);
  for (int64_t j = 0; j < kIntegerCols; ++j) {
    const int32_t byte = integer_code(x[j], scale);
    bytes[j] = static_cast<int8_t>(byte);
    sums[j / kSumCols] += byte;
  }
  return scale;
}

Rounded round(const float* x, int64_t rows, int64_t cols) {
  Rounded to(rows, cols);
  parallel_for(rows, grain_for(cols, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < cols; col += kIntegerCols) {
        int8_t bytes[kIntegerCols];
        to.scales[(row * cols + col) / kIntegerCols] =
            round_block(x + row * cols + col, bytes, &to.sums[(row * cols + col) / kSumCols]);
        std::memcpy(&to.groups[row * to.stride + col / 4], bytes, sizeof bytes);
      }
    }
  });
  return to;
}

struct Workspace {
  alignas(64) uint32_t words[kIntegerCols / 4 * kPanelRows];
  alignas(64) int32_t dots[kRows * kTile];
  alignas(64) float sums[kRows * kPanelRows];
};

// The sums of `count` rows from `row` on with a panel, in the workspace.
void add_panel(const Weight& weight, const Rounded& x, int64_t row, int64_t count, int64_t panel) {
  const CpuKernels& best = kernels();
  auto& [words, dots, sums] = PerThread<Workspace>::get();
  const int64_t cols = weight.cols, run = run_cols(weight.dtype);
  std::fill_n(sums, count * kPanelRows, 0.0f);
  for (int64_t col = 0; col < cols; col += kIntegerCols) {
    best.gemm.unpack_codes(weight, panel, col, words);
    for (int64_t part = 0; part < kIntegerCols; part += run) {
      for (int64_t i = 0; i < count; ++i) std::fill_n(dots + i * kTile, kPanelRows, 0);
      best.dot.signed_bytes(&x.groups[row * x.stride + (col + part) / 4], x.stride, count,
                            words + part / 4 * kPanelRows, kPanelRows, run / 4, dots);
      const IntegerRows rows{count, &x.scales[(row * cols + col) / kIntegerCols], cols / kIntegerCols,
                             &x.sums[(row * cols + col + part) / kSumCols], cols / kSumCols};
      best.gemm.add_dots(weight, panel, col + part, rows, dots, sums);
    }
  }
}

}  // namespace

// Sums of runs of 32 need both halves.
void product_integer(int64_t rows, const float* x, const Weight& weight, Store store) {
  Rounded rounded = round(x, rows, weight.cols);
  if (run_cols(weight.dtype) > kSumCols) {
    for (size_t i = 0; i < rounded.sums.size(); i += 2) rounded.sums[i] += rounded.sums[i + 1];
  }
  const int64_t panels = (weight.rows + kPanelRows - 1) / kPanelRows, tiles = (rows + kRows - 1) / kRows;
  const int64_t grain = grain_for(weight.cols * kPanelRows * std::min(rows, kRows), 1 << 17);
  parallel_for(panels * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t panel = index / tiles, row = index % tiles * kRows, col = panel * kPanelRows;
      const int64_t count = std::min(kRows, rows - row);
      add_panel(weight, rounded, row, count, panel);
      const float* sums = PerThread<Workspace>::get().sums;
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
