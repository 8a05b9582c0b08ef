// dora.h: what the DoRA operations share.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace spark::cpu {

// A row without length has gain magnitude / 1e-12 instead of a division by zero.
constexpr float kSmallestNorm = 1e-12f;

// G = A·Aᵀ, [R, R].
std::vector<float> gram(const LowRank& low_rank, int64_t cols);

}  // namespace spark::cpu
