// linear_blocks.h: products of a weight in a block format with rows that are rounded to signed bytes.
#pragma once

#include <vector>

#include "backend/cpu/gemm/product.h"

namespace spark::cpu {

// sums = x · Wᵀ of x rounded to bytes (integer_rows.h), for a weight in panels. The products of a run are
// summed exactly; then runs are added in order.
void product_integer(int64_t rows, const float* x, const Weight& weight, Store store);

// The same numbers as f32.
std::vector<float> rounded_to_integers(const float* x, int64_t count);

}  // namespace spark::cpu
