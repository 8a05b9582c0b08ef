// product.h: matrix products on the device (native/kernels/gemm/linear.cu), and the operands they take.
#pragma once

#include "backend/backend.h"
#include "kernels/gemm/product_args.h"

namespace spark::cuda {

// Lines are the rows or the columns of a row-major f32 matrix with `cols` columns.
Lines rows_of(const float* matrix, int64_t cols);
Lines columns_of(const float* matrix, int64_t cols);

// An f32 matrix in the place of a weight.
Weight as_weight(const float* matrix, int64_t rows, int64_t cols);

// a[M, K] times the rows (N = weight.rows) or the columns (N = weight.cols) of the weight; [M, N] row-major
// into `out`. The caller adds segments and changes the epilogue before launch_rows or launch_columns.
ProductArgs with_rows(int64_t rows, Lines a, const Weight& weight, float* out);
ProductArgs with_columns(int64_t rows, Lines a, const Weight& weight, float* out);

void launch_rows(const ProductArgs& args);
void launch_columns(const ProductArgs& args);

// out[col] = Σ_row a[row, col] · b[row, col] / max(norm[col], 1e-12). b null: 1; norm null: not divided.
void launch_column_sums(const float* a, const float* b, int64_t rows, int64_t cols, const float* norm,
                        float* out);

}  // namespace spark::cuda
