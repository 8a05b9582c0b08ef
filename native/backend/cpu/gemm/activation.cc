// activation.cc: activations of a row of accumulators.
#include "backend/cpu/gemm/activation.h"

#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

UnaryFn function_of(Activation activation) {
  switch (activation) {
    case Activation::kNone:
    case Activation::kRelu:
    case Activation::kRelu6:
      break;
    case Activation::kGelu:
      return UnaryFn::kGelu;
    case Activation::kGeluTanh:
      return UnaryFn::kGeluTanh;
    case Activation::kSilu:
      return UnaryFn::kSilu;
    case Activation::kSigmoid:
      return UnaryFn::kSigmoid;
    case Activation::kTanh:
      return UnaryFn::kTanh;
    case Activation::kHardSwish:
      return UnaryFn::kHardSwish;
  }
  return UnaryFn::kRelu;
}

}  // namespace

void activate(Activation activation, int64_t count, float* values) {
  if (activation == Activation::kNone) return;
  if (is_bounds(activation)) {
    return kernels().gemm.store_rows(values, 0, 1, count, {nullptr, nullptr, false, activation, values, 0});
  }
  kernels().elementwise.unary(function_of(activation), 0, 0, values, count, values);
}

}  // namespace spark::cpu
