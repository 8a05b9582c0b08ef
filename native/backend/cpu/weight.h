// weight.h: a frozen weight read as f32, a piece of a row at a time. A whole weight is never decoded.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// dst[j] = W[row, col + j] for j < count. For nvfp4, col and count are multiples of 16.
void decode(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst);

}  // namespace spark::cpu
