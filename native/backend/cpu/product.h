// product.h: the one matrix product of the CPU backend: sums[m, n] = Σ_k a(m, k) · b(n, k), f32.
// Each side is a set of lines along K, whatever its layout or format; only small panels of it are ever
// decoded. Trap: the order of a sum is part of the contract (backend.h). K is cut into chunks of kChunk; in a
// chunk, term k goes to lane k mod 8; lanes are added by a fixed tree, chunks and then segments in their
// order.
#pragma once

#include <functional>
#include <initializer_list>

#include "backend/backend.h"

namespace spark::cpu {

// One side of a product. A line is a row of the left or a column of the right matrix, K its direction.
struct Operand {
  const Weight* weight;  // null: f32 data
  bool columns;          // the lines of `weight` are its columns
  const float* data;     // element (line, k) is data[line * line_stride + k * k_stride]; one stride is 1
  int64_t line_stride, k_stride;
  // Factors of f32 data, one of them at most:
  const float* mask = nullptr;     // as data; null: none
  const float* k_scale = nullptr;  // [K]; null: none
};

// Lines are the rows or the columns of a row-major matrix with `cols` columns.
Operand rows_of(const float* matrix, int64_t cols);
Operand columns_of(const float* matrix, int64_t cols);
Operand rows_of(const Weight& weight);
Operand columns_of(const Weight& weight);

Operand masked(Operand operand, const float* mask);
Operand scaled(Operand operand, const float* k_scale);

struct Segment {
  Operand a, b;
  int64_t depth;  // length of K
};

// Receives sums[row, col .. col + count). Called once for each element, from several threads; must not throw.
// col is a multiple of 16.
using Store = std::function<void(int64_t row, int64_t col, int64_t count, const float* sums)>;

// All segments are summed. An empty K gives zeros.
void product(int64_t rows, int64_t cols, std::initializer_list<Segment> segments, const Store& store);

}  // namespace spark::cpu
