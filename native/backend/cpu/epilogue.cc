#include "backend/cpu/epilogue.h"

#include <cmath>

namespace spark::cpu {
namespace {

template <typename Function>
void apply(int64_t count, float* values, const Function& function) {
  for (int64_t i = 0; i < count; ++i) values[i] = function(values[i]);
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void activate(Activation activation, int64_t count, float* values) {
  constexpr float kRootHalf = 0.70710678f, kRootTwoOverPi = 0.79788456f;
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      return apply(count, values, [](float x) { return x < 0 ? 0 : x; });
    case Activation::kGelu:
      return apply(count, values, [](float x) { return 0.5f * x * (1 + std::erf(x * kRootHalf)); });
    case Activation::kGeluTanh:
      return apply(count, values, [](float x) {
        return 0.5f * x * (1 + std::tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
      });
    case Activation::kSilu:
      return apply(count, values, [](float x) { return x * sigmoid(x); });
    case Activation::kSigmoid:
      return apply(count, values, sigmoid);
    case Activation::kTanh:
      return apply(count, values, [](float x) { return std::tanh(x); });
  }
}

}  // namespace spark::cpu
