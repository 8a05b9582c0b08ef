// elementwise_kernels_body.h: the loops of elementwise_kernels.h, compiled once per instruction set
// (isa_body.h).
#pragma once

#include "backend/cpu/simd/elementwise_kernels.h"
#include "backend/cpu/simd/vector_math.h"

namespace spark::cpu {
namespace {
namespace elementwise {

using vector_math::Floats;
using vector_math::kLanes;
using vector_math::load;
using vector_math::load_some;
using vector_math::splat;
using vector_math::store;

template <typename Function>
inline void each(const float* x, int64_t count, float* y, const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, function(load(x + i)));
  if (i < count) store(y + i, function(load_some(x + i, count - i, 0)), count - i);
}

template <typename Function>
inline void each_pair(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t count, float* y,
                      const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats left = a_step ? load(a + i) : splat(*a), right = b_step ? load(b + i) : splat(*b);
    store(y + i, function(left, right));
  }
  if (i == count) return;
  const int64_t rest = count - i;
  const Floats left = a_step ? load_some(a + i, rest, 0) : splat(*a);
  const Floats right = b_step ? load_some(b + i, rest, 0) : splat(*b);
  store(y + i, function(left, right), rest);
}

void unary(UnaryFn fn, float alpha, float beta, const float* x, int64_t count, float* y) {
  with_constant(fn, [&](auto constant) {
    constexpr UnaryFn known = constant.value;
    if constexpr (f32::covers(known)) {
      each(x, count, y, [=](Floats v) { return f32::unary(known, v, alpha, beta); });
    }
  });
}

void binary(BinaryFn fn, const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t count,
            float* y) {
  const auto loop = [&](const auto& function) { each_pair(a, a_step, b, b_step, count, y, function); };
  with_constant(fn, [&](auto constant) {
    constexpr BinaryFn known = constant.value;
    if constexpr (known == BinaryFn::kPow) {
      loop([](Floats u, Floats v) { return vector_math::pow(u, v); });
    } else if constexpr (f32::covers(known)) {
      loop([](Floats u, Floats v) { return f32::binary(known, u, v); });
    }
  });
}

constexpr ElementwiseKernels kKernels = {
    .unary = unary,
    .binary = binary,
};

}  // namespace elementwise
}  // namespace
}  // namespace spark::cpu
