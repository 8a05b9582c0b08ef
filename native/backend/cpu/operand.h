// operand.h: one side of a matrix product.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// A line is a row of the left or a column of the right matrix, K its direction.
struct Operand {
  const Weight* weight;  // null: f32 data
  bool columns;          // the lines are the columns of the row-major matrix below, not its rows
  const float* data;     // element (line, k) is data[columns ? k * stride + line : line * stride + k]
  int64_t stride;
  // Factors of f32 data, one of them at most:
  const float* mask = nullptr;     // as data; null: none
  const float* k_scale = nullptr;  // [K]; null: none
};

}  // namespace spark::cpu
