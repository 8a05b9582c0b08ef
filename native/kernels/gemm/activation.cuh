// activation.cuh: the activations of backend.h.
#pragma once

#include "backend/float_functions.h"

namespace spark {

// Not inlined: a kernel stores dozens of sums.
__device__ __noinline__ inline float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kGelu:
      return f32::gelu(x);
    case Activation::kGeluTanh:
      return f32::gelu_tanh(x);
    case Activation::kSilu:
      return x * f32::sigmoid(x);
    case Activation::kSigmoid:
      return f32::sigmoid(x);
    case Activation::kTanh:
      return f32::tanh(x);
    case Activation::kRelu6:
      return x < 0 ? 0 : x > 6 ? 6 : x;
    case Activation::kHardSwish: {
      const float gate = x / 6 + 0.5f;
      return x * (gate < 0 ? 0 : gate > 1 ? 1 : gate);
    }
  }
  return x;
}

}  // namespace spark
