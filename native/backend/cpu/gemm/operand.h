// operand.h: one side of a matrix product.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// The matrix of a convolution, never formed: a row for each channel and tap, a column for each position of
// the output, of several images. An image lies so that every row sees it through one offset (padded_input.h):
// element (row, position [n, z, y, x]) = data[offset[row] + n · pitch[0] + z · pitch[1] + y · pitch[2] + x].
struct Patches {
  const float* data;
  const int64_t* offset;  // [rows]
  int64_t size[4];        // of positions: images, depth, height, width
  int64_t pitch[3];
  bool slack;  // the 16 floats behind any element can be read
};

// A line is a row of the left or a column of the right matrix, K its direction.
struct Operand {
  const Weight* weight;  // null: f32 data
  bool columns;          // the lines are the columns of the row-major matrix below, not its rows
  const float* data;     // element (line, k) is data[columns ? k * stride + line : line * stride + k]
  int64_t stride;
  // Factors of f32 data, one of them at most:
  const float* mask = nullptr;     // as data; null: none
  const float* k_scale = nullptr;  // [K]; null: none
  // In the place of data and stride; a row of the matrix is one of these.
  const Patches* patches = nullptr;
};

// Elements (line + i, k + j) of an operand for i < lines and j < count.
struct Block {
  int64_t line, lines, k, count;
};

}  // namespace spark::cpu
