// dot_gemm.h: a matrix product of rows and panels of groups (dot_kernels.h), tile by tile on all threads.
#pragma once

#include <functional>
#include <vector>

#include "backend/cpu/gemm/dot_kernels.h"

namespace spark::cpu {

template <typename Sum>
struct DotGemm {
  int64_t rows, cols, groups;
  const uint32_t* x;  // [rows, stride], zeros beyond `groups`
  int64_t stride;     // of x, a multiple of kDotGroupPadding
  // The panel of the columns [col, col + kPanelRows) from group on: [count][kPanelRows]. buffer, of
  // kDotGroups * kPanelRows, is there to be used. Called from several threads.
  std::function<const uint32_t*(int64_t col, int64_t group, int64_t count, uint32_t* buffer)> panel;
  // Receives sums[row, col .. col + count), count <= kTile, from several threads.
  std::function<void(int64_t row, int64_t col, int64_t count, const Sum* sums)> store;
};

void dot_gemm(const DotGemm<float>& product, MultiplyDots<float> multiply);
void dot_gemm(const DotGemm<int32_t>& product, MultiplyDots<int32_t> multiply);

// Groups of a row with its padding.
inline int64_t padded_dot_groups(int64_t groups) {
  return (groups + kDotGroupPadding - 1) / kDotGroupPadding * kDotGroupPadding;
}

void round_to_bf16(const float* from, int64_t count, uint16_t* to);

// Rows of x, [rows, cols], in bf16: [rows, stride] groups.
std::vector<uint32_t> round_rows(const float* x, int64_t rows, int64_t cols, int64_t stride);

}  // namespace spark::cpu
