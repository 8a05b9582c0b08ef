// activation.h: activation functions of a row of accumulators.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// What a value is kept between; NaN stays NaN.
struct Bounds {
  float least, most;
};

// Whether an activation is nothing but bounds, which kernels apply to sums that are still in registers.
inline bool is_bounds(Activation activation) {
  return activation == Activation::kNone || activation == Activation::kRelu ||
         activation == Activation::kRelu6;
}

// Those of an activation; wide open where it is something else. Inlined into units of instruction sets, which
// share no code.
__attribute__((always_inline)) inline Bounds bounds_of(Activation activation) {
  constexpr float kInfinity = __builtin_inff();
  if (activation == Activation::kRelu) return {0, kInfinity};
  if (activation == Activation::kRelu6) return {0, 6};
  return {-kInfinity, kInfinity};
}

// values[i] = activation(values[i]) for i < count
void activate(Activation activation, int64_t count, float* values);

}  // namespace spark::cpu
