// activation.cc: activations of a row of accumulators.
#include "backend/cpu/gemm/activation.h"

#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

UnaryFn function_of(Activation activation) {
  switch (activation) {
    case Activation::kNone:
    case Activation::kRelu:
      return UnaryFn::kRelu;
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
  }
  return UnaryFn::kRelu;
}

}  // namespace

void activate(Activation activation, int64_t count, float* values) {
  if (activation == Activation::kNone) return;
  kernels().elementwise.unary(function_of(activation), 0, 0, values, count, values);
}

}  // namespace spark::cpu
