// dora.h: shared helpers of the DoRA operations.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace spark::cpu {

// G = A·Aᵀ, [R, R].
std::vector<float> gram(const LowRank& low_rank, int64_t cols);

}  // namespace spark::cpu
