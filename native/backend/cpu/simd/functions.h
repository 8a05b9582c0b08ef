// functions.h: the functions of one number as callables.
#pragma once

#include "backend/unary_functions.h"

namespace spark::cpu {

// x[i] = fn(x[i]) for i < count.
void apply(const Function& function, float* x, int64_t count);

// Calls body with fn as a callable, so that the loop around it is compiled for each. defined_for(fn, V is a
// float type).
template <typename V, typename Body>
void with_unary_function(const Function& function, const Body& body) {
  constexpr bool floats = std::is_floating_point_v<V>;
  const V alpha = static_cast<V>(function.alpha), beta = static_cast<V>(function.beta);
  with_constant(function.fn, [&](auto constant) {
    constexpr UnaryFn known = constant.value;
    if constexpr (defined_for(known, floats)) {
      body([=](V x) { return unary_value(known, x, alpha, beta); });
    }
  });
}

}  // namespace spark::cpu
