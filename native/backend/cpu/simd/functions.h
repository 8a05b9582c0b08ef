// functions.h: the functions of one number as callables.
#pragma once

#include <utility>

#include "backend/unary_functions.h"

namespace spark::cpu {

// x[i] = fn(x[i]) for i < count.
void apply(const Function& function, float* x, int64_t count);

// Calls body with `value` as a constant, so that what depends on it is compiled for each value up to kLast.
template <auto kLast, typename Body>
void with_constant(decltype(kLast) value, const Body& body) {
  using Enum = decltype(kLast);
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((value == static_cast<Enum>(I) ? body(std::integral_constant<Enum, static_cast<Enum>(I)>{}) : void()),
     ...);
  }
  (std::make_index_sequence<static_cast<size_t>(kLast) + 1>());
}

// Calls body with fn as a callable, so that the loop around it is compiled for each. defined_for(fn, V is a
// float type).
template <typename V, typename Body>
void with_unary_function(const Function& function, const Body& body) {
  constexpr bool floats = std::is_floating_point_v<V>;
  const V alpha = static_cast<V>(function.alpha), beta = static_cast<V>(function.beta);
  with_constant<UnaryFn::kIsInf>(function.fn, [&](auto constant) {
    constexpr UnaryFn known = constant.value;
    if constexpr (defined_for(known, floats)) {
      body([=](V x) { return unary_value(known, x, alpha, beta); });
    }
  });
}

}  // namespace spark::cpu
