// unary_functions.h: the functions of UnaryFn. One source for the CPU and the CUDA kernels; those of f32 that
// float_functions.h lacks, and all of f64, are <cmath>'s of either side.
#pragma once

#include <cmath>

#include "backend/float_functions.h"
#include "backend/numbers.h"

namespace spark {

constexpr double kSqrtHalf = 0.70710678118654752;    // √(1/2)
constexpr double kDensity0 = 0.39894228040143268;    // 1/√(2π)
constexpr double kTanhFactor = 0.79788456080286536;  // √(2/π)
constexpr double kTanhCubic = 0.044715;

template <typename V>
SPARK_HOST_DEVICE inline V sigmoid(V x) {
  return 1 / (1 + std::exp(-x));
}

template <typename V>
SPARK_HOST_DEVICE inline V gelu_inner(V x) {
  return std::tanh(V(kTanhFactor) * (x + V(kTanhCubic) * x * x * x));
}

// log(1 + e^x) without overflow.
template <typename V>
SPARK_HOST_DEVICE inline V softplus(V x) {
  return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : 0);
}

template <typename V>
SPARK_HOST_DEVICE inline V unit_clamp(V x) {
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

// fn(x) of a float type; defined_for(fn, true).
template <typename V>
SPARK_HOST_DEVICE inline V unary_float(UnaryFn fn, V x, V alpha, V beta) {
  if constexpr (std::is_same_v<V, float>) {
    if (f32::covers(fn)) return f32::unary(fn, x, alpha, beta);
  }
  switch (fn) {
    case UnaryFn::kAbs:
      return std::abs(x);
    case UnaryFn::kNeg:
      return -x;
    case UnaryFn::kSign:
      return x > 0 ? V(1) : x < 0 ? V(-1) : x;
    case UnaryFn::kRelu:
      return x < 0 ? V(0) : x;  // NaN stays NaN
    case UnaryFn::kNot:
      return V(x == 0);
    case UnaryFn::kBitwiseNot:
      break;
    case UnaryFn::kReciprocal:
      return 1 / x;
    case UnaryFn::kSqrt:
      return std::sqrt(x);
    case UnaryFn::kExp:
      return std::exp(x);
    case UnaryFn::kLog:
      return std::log(x);
    case UnaryFn::kErf:
      return std::erf(x);
    case UnaryFn::kFloor:
      return std::floor(x);
    case UnaryFn::kCeil:
      return std::ceil(x);
    case UnaryFn::kRound:
      return std::nearbyint(x);
    case UnaryFn::kSin:
      return std::sin(x);
    case UnaryFn::kCos:
      return std::cos(x);
    case UnaryFn::kTan:
      return std::tan(x);
    case UnaryFn::kAsin:
      return std::asin(x);
    case UnaryFn::kAcos:
      return std::acos(x);
    case UnaryFn::kAtan:
      return std::atan(x);
    case UnaryFn::kSinh:
      return std::sinh(x);
    case UnaryFn::kCosh:
      return std::cosh(x);
    case UnaryFn::kTanh:
      return std::tanh(x);
    case UnaryFn::kAsinh:
      return std::asinh(x);
    case UnaryFn::kAcosh:
      return std::acosh(x);
    case UnaryFn::kAtanh:
      return std::atanh(x);
    case UnaryFn::kSigmoid:
      return sigmoid(x);
    case UnaryFn::kGelu:
      return V(0.5) * x * (1 + std::erf(x * V(kSqrtHalf)));
    case UnaryFn::kGeluTanh:
      return V(0.5) * x * (1 + gelu_inner(x));
    case UnaryFn::kSilu:
      return x * sigmoid(x);
    case UnaryFn::kSwish:
      return x * sigmoid(alpha * x);
    case UnaryFn::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case UnaryFn::kCelu:
      return x < 0 ? alpha * std::expm1(x / alpha) : x;
    case UnaryFn::kSelu:
      return beta * (x < 0 ? alpha * std::expm1(x) : x);
    case UnaryFn::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case UnaryFn::kThresholdedRelu:
      return x > alpha || x != x ? x : V(0);
    case UnaryFn::kHardSigmoid:
      return unit_clamp(alpha * x + beta);
    case UnaryFn::kHardSwish:
      return x * unit_clamp(x / 6 + V(0.5));
    case UnaryFn::kSoftplus:
      return softplus(x);
    case UnaryFn::kSoftsign:
      return x / (1 + std::abs(x));
    case UnaryFn::kMish:
      return x * std::tanh(softplus(x));
    case UnaryFn::kShrink:
      return x < -alpha ? x + beta : x > alpha ? x - beta : V(0);
    case UnaryFn::kIsNaN:
      return V(x != x);
    case UnaryFn::kIsInf:
      return V(std::isinf(x) && (x < 0 ? alpha : beta) != 0);
  }
  return x;
}

// fn(x) of an integer type; defined_for(fn, false).
template <typename V>
SPARK_HOST_DEVICE inline V unary_integer(UnaryFn fn, V x) {
  switch (fn) {
    case UnaryFn::kAbs:
      return negative(x) ? wrap_sub(V{0}, x) : x;
    case UnaryFn::kNeg:
      return wrap_sub(V{0}, x);
    case UnaryFn::kSign:
      return static_cast<V>((x > V{0}) - negative(x));
    case UnaryFn::kRelu:
      return negative(x) ? V{0} : x;
    case UnaryFn::kNot:
      return V{x == V{0}};
    default:
      return ~x;
  }
}

// fn(x); defined_for(fn, V is a float type).
template <typename V>
SPARK_HOST_DEVICE inline V unary_value(UnaryFn fn, V x, V alpha, V beta) {
  if constexpr (std::is_floating_point_v<V>) {
    return unary_float(fn, x, alpha, beta);
  } else {
    return unary_integer(fn, x);
  }
}

}  // namespace spark
