// elementwise_kernels.h: elementwise functions of f32. Every instruction set gives the same bits. Outputs may
// be inputs.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/float_functions.h"

namespace spark::cpu {

struct ElementwiseKernels {
  // y[i] = fn(x[i]); f32::covers(fn).
  void (*unary)(UnaryFn fn, float alpha, float beta, const float* x, int64_t count, float* y);
  // y[i] = fn(a[i · a_step], b[i · b_step]), steps of 0 or 1; has_loop(fn).
  void (*binary)(BinaryFn fn, const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t count,
                 float* y);
};

constexpr bool has_loop(BinaryFn fn) { return fn == BinaryFn::kPow || f32::covers(fn); }

}  // namespace spark::cpu
