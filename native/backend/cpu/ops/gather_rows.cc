// gather_rows.cc: rows of a table in any format of weights, decoded.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/weight.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/inside.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

void gather_row(const Weight& weight, int64_t row, float* y) {
  const int64_t first = row / kPanelRows * kPanelRows, rows = row - first + 1;
  float piece[kPanelRows * kLine];
  for (int64_t col = 0; col < weight.cols; col += kChunk) {
    const int64_t count = std::min(kChunk, weight.cols - col);
    if (weight.packed) {
      decode(weight, first, rows, col, count, piece);
    } else {
      decode(weight, row, 1, col, count, piece);
    }
    std::copy_n(piece + (weight.packed ? rows - 1 : 0) * kLine, count, y + col);
  }
}

}  // namespace

void gather_rows(const GatherRowsArgs& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t index = args.indices[i];
    if (index < -rows || index >= rows) {
      throw Error("ERR_ARGUMENT", message("an index is ", index, ", not in [-", rows, ", ", rows, ")"));
    }
  }
  parallel_for(args.count, grain_for(cols, 1 << 13), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = args.indices[i];
      gather_row(args.weight, inside(index < 0 ? index + rows : index, rows), args.y + i * cols);
    }
  });
}

}  // namespace spark::cpu
