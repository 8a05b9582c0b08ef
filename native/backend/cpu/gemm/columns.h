// columns.h: sums down the columns of an activation, with an order that does not depend on the threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/grain.h"
#include "core/thread_pool.h"

namespace spark::cpu {

// store(col, Σ_t term(t * cols + col)) for each column: chunks of 256 rows in order, rows in order within.
template <typename Term, typename Store>
void column_sums(int64_t rows, int64_t cols, const Term& term, const Store& store) {
  constexpr int64_t kWidth = 64, kChunk = 256;
  const int64_t groups = (cols + kWidth - 1) / kWidth;
  const int64_t grain = grain_for(rows * kWidth, 1 << 16);
  parallel_for(groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t col = group * kWidth, width = std::min(kWidth, cols - col);
      float total[kWidth] = {};
      for (int64_t first = 0; first < rows; first += kChunk) {
        float sums[kWidth] = {};
        for (int64_t t = first; t < std::min(rows, first + kChunk); ++t) {
          for (int64_t j = 0; j < width; ++j) sums[j] += term(t * cols + col + j);
        }
        for (int64_t j = 0; j < width; ++j) total[j] += sums[j];
      }
      for (int64_t j = 0; j < width; ++j) store(col + j, total[j]);
    }
  });
}

}  // namespace spark::cpu
