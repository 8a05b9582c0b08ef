// product_bf16.cc: GEMM with a frozen weight in bf16.
#include <algorithm>
#include <vector>

#include "backend/cpu/gemm/dot_gemm.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/per_thread.h"

namespace spark::cpu {
namespace {

struct Workspace {
  float values[kPanelRows * kLine];
  uint16_t rounded[kPanelRows * kChunk];
};

// to[l * kPanelRows + i] = W[row + i, 2 (group + l)] and its neighbour, as bf16, for l < count
void round_panel(const Weight& weight, int64_t row, int64_t group, int64_t count, uint32_t* to) {
  auto& [values, rounded] = PerThread<Workspace>::get();
  const int64_t col = 2 * group, cols = std::min(2 * count, weight.cols - col);
  kernels().gemm.pack_panel(rows_of(weight), {row, std::min(kPanelRows, weight.rows - row), col, cols},
                            values);
  if (cols < 2 * count) std::fill_n(values + cols * kPanelRows, kPanelRows, 0.0f);
  round_to_bf16(values, 2 * count * kPanelRows, rounded);
  for (int64_t l = 0; l < count; ++l) {
    const uint16_t* pair = rounded + 2 * l * kPanelRows;
    for (int64_t i = 0; i < kPanelRows; ++i) to[l * kPanelRows + i] = pair[i] | pair[i + kPanelRows] << 16;
  }
}

}  // namespace

void product_bf16(int64_t rows, const float* x, const Weight& weight, Store store) {
  const int64_t groups = (weight.cols + 1) / 2, stride = padded_dot_groups(groups);
  const std::vector<uint32_t> rounded = round_rows(x, rows, weight.cols, stride);
  DotGemm<float> product{rows, weight.rows, groups, rounded.data(), stride, {}, store};
  if (weight.packed && weight.dtype == DType::kBF16) {
    product.panel = [&](int64_t col, int64_t group, int64_t, uint32_t*) {
      return static_cast<const uint32_t*>(weight.data) + (col / kPanelRows * groups + group) * kPanelRows;
    };
  } else {
    product.panel = [&](int64_t col, int64_t group, int64_t count, uint32_t* buffer) {
      round_panel(weight, col, group, count, buffer);
      return buffer;
    };
  }
  dot_gemm(product, kernels().dot.bf16);
}

}  // namespace spark::cpu
