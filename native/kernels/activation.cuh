// activation.cuh: the activations of backend.h.
#pragma once

#include "backend/backend.h"

namespace spark {

// Not inlined: a kernel stores dozens of sums.
__device__ __noinline__ inline float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kGelu:
      return 0.5f * x * (1 + erff(x * 0.70710678f));
    case Activation::kGeluTanh:
      return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case Activation::kSilu:
      return x / (1 + expf(-x));
    case Activation::kSigmoid:
      return 1 / (1 + expf(-x));
    case Activation::kTanh:
      return tanhf(x);
  }
  return x;
}

}  // namespace spark
