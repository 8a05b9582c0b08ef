// attention_tiles.cc: packing and GEMMs of the tiles of attention.
#include "backend/cpu/attention/attention_tiles.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/gemm/product.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {

void put_row(const float* from, int64_t depth, int64_t row, float* left) {
  for (int64_t d = 0; d < depth; d += kChunk) {
    std::copy_n(from + d, std::min(kChunk, depth - d), left + d / kChunk * kTileRows * kLine + row * kLine);
  }
}

void put_rows(const float* from, int64_t step, int64_t rows, int64_t depth, float* left) {
  for (int64_t row = 0; row < rows; ++row) put_row(from + row * step, depth, row, left);
}

void multiply_rows(const float* left, int64_t rows, const HeadRows& right, float* panel, float* sums) {
  const auto& [from, step, first, count, depth] = right;
  const GemmKernels& best = kernels().gemm;
  const Operand lines = rows_of(from, step);
  for (int64_t row = 0; row < rows; ++row) std::fill_n(sums + row * kTile, count, 0.0f);
  for (int64_t d = 0; d < depth; d += kChunk) {
    const float* chunk = left + d / kChunk * kTileRows * kLine;
    for (int64_t j = 0; j < count; j += kPanelRows) {
      best.multiply({chunk, 0}, rows, lines,
                    {first + j, std::min(kPanelRows, count - j), d, std::min(kChunk, depth - d)}, panel,
                    sums + j);
    }
  }
}

void multiply_columns(const float* left, int64_t rows, const HeadRows& right, float* panel, float* sums) {
  const auto& [from, step, first, count, width] = right;
  const GemmKernels& best = kernels().gemm;
  const Operand lines = columns_of(from, step);
  for (int64_t e = 0; e < width; e += kPanelRows) {
    best.multiply({left, 0}, rows, lines, {e, std::min(kPanelRows, width - e), first, count}, panel,
                  sums_at(sums, 0, e / kTile) + e % kTile);
  }
}

void scale_scores(const AttentionArgs& args, int64_t count, float* values, float* slopes) {
  kernels().rows.affine(values, count, args.scale, 0, values);
  if (args.softcap == 0) {
    if (slopes) std::fill_n(slopes, count, 1.0f);
    return;
  }
  for (int64_t j = 0; j < count; ++j) {
    const float capped = std::tanh(values[j] / args.softcap);
    values[j] = args.softcap * capped;
    if (slopes) slopes[j] = 1 - capped * capped;
  }
}

}  // namespace spark::cpu
