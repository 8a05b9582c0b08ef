// activation.h: activation functions of a row of accumulators.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// values[i] = activation(values[i]) for i < count
void activate(Activation activation, int64_t count, float* values);

}  // namespace spark::cpu
