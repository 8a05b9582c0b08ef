// epilogue.h: bias, activation and residual applied to a tile of accumulators.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// y[i, j] = activation(sums[i, j] + bias[i]) + residual[i, j], or activation(sums[i, j] + bias[i] +
// residual[i, j]) when it is `residual_first`.
struct Epilogue {
  const float* bias;      // null: 0
  const float* residual;  // as y, which it may be; null: none
  bool residual_first;
  Activation activation;
  float* y;                      // null: nothing of all that is wanted
  int64_t stride;                // between rows of y
  bool bias_of_columns = false;  // bias[j] in the place of bias[i]
};

// What belongs to row `row` and column `col` on.
inline Epilogue epilogue_at(Epilogue to, int64_t row, int64_t col) {
  const int64_t offset = row * to.stride + col;
  if (to.bias) to.bias += to.bias_of_columns ? col : row;
  if (to.residual) to.residual += offset;
  to.y += offset;
  return to;
}

// The sums of some rows, `pitch` elements apart, become what `to` says.
void apply_epilogue(const float* sums, int64_t pitch, int64_t rows, int64_t cols, const Epilogue& to);

// What the kernels that store through `to` leave to be done: an activation that is no bounds, of rows of y.
void activate_rows(int64_t rows, int64_t cols, const Epilogue& to);

}  // namespace spark::cpu
