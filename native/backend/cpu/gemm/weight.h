// weight.h: a frozen weight read as f32, a few rows at a time. A whole weight is never decoded.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/gemm/gemm_kernels.h"

namespace spark::cpu {

// dst[i * kLine + j] = W[row + i, col + j] for i < rows, j < count <= kChunk. row is a multiple of kPanelRows
// and rows at most that; col is a multiple of 16, and count is for nvfp4.
void decode(const Weight& weight, int64_t row, int64_t rows, int64_t col, int64_t count, float* dst);

}  // namespace spark::cpu
