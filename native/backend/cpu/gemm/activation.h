// epilogue.h: what happens to a row of sums before it is stored.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// values[i] = activation(values[i]) for i < count
void activate(Activation activation, int64_t count, float* values);

}  // namespace spark::cpu
