// functions.h: the functions of one number that need more than a word of <cmath>, for float and double.
#pragma once

#include <cmath>

#include "backend/backend.h"

namespace spark::cpu {

constexpr double kSqrtHalf = 0.70710678118654752;    // √(1/2)
constexpr double kDensity0 = 0.39894228040143268;    // 1/√(2π)
constexpr double kTanhFactor = 0.79788456080286536;  // √(2/π)
constexpr double kTanhCubic = 0.044715;

template <typename V>
V sigmoid(V x) {
  return 1 / (1 + std::exp(-x));
}

template <typename V>
V gelu_inner(V x) {
  return std::tanh(V(kTanhFactor) * (x + V(kTanhCubic) * x * x * x));
}

// log(1 + e^x) without overflow.
template <typename V>
V softplus(V x) {
  return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : 0);
}

template <typename V>
V unit_clamp(V x) {
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

// x[i] = fn(x[i]) for i < count.
void apply(const Function& function, float* x, int64_t count);

// Calls body with fn as a callable, so that the loop around it is compiled for each. V is a float type.
template <typename V, typename Body>
void with_float_function(const Function& function, const Body& body) {
  const V alpha = static_cast<V>(function.alpha), beta = static_cast<V>(function.beta);
  switch (function.fn) {
    case UnaryFn::kAbs:
      return body([](V x) { return std::abs(x); });
    case UnaryFn::kNeg:
      return body([](V x) { return -x; });
    case UnaryFn::kSign:
      return body([](V x) { return x > 0 ? V(1) : x < 0 ? V(-1) : x; });
    case UnaryFn::kRelu:
      return body([](V x) { return x < 0 ? V(0) : x; });  // NaN stays NaN
    case UnaryFn::kNot:
      return body([](V x) { return V(x == 0); });
    case UnaryFn::kBitwiseNot:
      return;  // floats have none: unary refuses it
    case UnaryFn::kReciprocal:
      return body([](V x) { return 1 / x; });
    case UnaryFn::kSqrt:
      return body([](V x) { return std::sqrt(x); });
    case UnaryFn::kExp:
      return body([](V x) { return std::exp(x); });
    case UnaryFn::kLog:
      return body([](V x) { return std::log(x); });
    case UnaryFn::kErf:
      return body([](V x) { return std::erf(x); });
    case UnaryFn::kFloor:
      return body([](V x) { return std::floor(x); });
    case UnaryFn::kCeil:
      return body([](V x) { return std::ceil(x); });
    case UnaryFn::kRound:
      return body([](V x) { return std::nearbyint(x); });
    case UnaryFn::kSin:
      return body([](V x) { return std::sin(x); });
    case UnaryFn::kCos:
      return body([](V x) { return std::cos(x); });
    case UnaryFn::kTan:
      return body([](V x) { return std::tan(x); });
    case UnaryFn::kAsin:
      return body([](V x) { return std::asin(x); });
    case UnaryFn::kAcos:
      return body([](V x) { return std::acos(x); });
    case UnaryFn::kAtan:
      return body([](V x) { return std::atan(x); });
    case UnaryFn::kSinh:
      return body([](V x) { return std::sinh(x); });
    case UnaryFn::kCosh:
      return body([](V x) { return std::cosh(x); });
    case UnaryFn::kTanh:
      return body([](V x) { return std::tanh(x); });
    case UnaryFn::kAsinh:
      return body([](V x) { return std::asinh(x); });
    case UnaryFn::kAcosh:
      return body([](V x) { return std::acosh(x); });
    case UnaryFn::kAtanh:
      return body([](V x) { return std::atanh(x); });
    case UnaryFn::kSigmoid:
      return body([](V x) { return sigmoid(x); });
    case UnaryFn::kGelu:
      return body([](V x) { return V(0.5) * x * (1 + std::erf(x * V(kSqrtHalf))); });
    case UnaryFn::kGeluTanh:
      return body([](V x) { return V(0.5) * x * (1 + gelu_inner(x)); });
    case UnaryFn::kSilu:
      return body([](V x) { return x * sigmoid(x); });
    case UnaryFn::kSwish:
      return body([=](V x) { return x * sigmoid(alpha * x); });
    case UnaryFn::kElu:
      return body([=](V x) { return x < 0 ? alpha * std::expm1(x) : x; });
    case UnaryFn::kCelu:
      return body([=](V x) { return x < 0 ? alpha * std::expm1(x / alpha) : x; });
    case UnaryFn::kSelu:
      return body([=](V x) { return beta * (x < 0 ? alpha * std::expm1(x) : x); });
    case UnaryFn::kLeakyRelu:
      return body([=](V x) { return x < 0 ? alpha * x : x; });
    case UnaryFn::kThresholdedRelu:
      return body([=](V x) { return x > alpha || x != x ? x : V(0); });
    case UnaryFn::kHardSigmoid:
      return body([=](V x) { return unit_clamp(alpha * x + beta); });
    case UnaryFn::kHardSwish:
      return body([](V x) { return x * unit_clamp(x / 6 + V(0.5)); });
    case UnaryFn::kSoftplus:
      return body([](V x) { return softplus(x); });
    case UnaryFn::kSoftsign:
      return body([](V x) { return x / (1 + std::abs(x)); });
    case UnaryFn::kMish:
      return body([](V x) { return x * std::tanh(softplus(x)); });
    case UnaryFn::kShrink:
      return body([=](V x) { return x < -alpha ? x + beta : x > alpha ? x - beta : V(0); });
    case UnaryFn::kIsNaN:
      return body([](V x) { return V(x != x); });
    case UnaryFn::kIsInf:
      return body([=](V x) { return V(std::isinf(x) && (x < 0 ? alpha : beta) != 0); });
  }
}

}  // namespace spark::cpu
