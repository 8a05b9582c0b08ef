// binary_functions.h: the functions of BinaryFn. One source for the CPU and the CUDA kernels; the functions
// of <cmath> are those of either side.
#pragma once

#include <cmath>

#include "backend/unary_functions.h"

namespace spark {

template <typename V>
SPARK_HOST_DEVICE inline V gelu_tanh_grad(V x) {
  const V inner = gelu_inner(x);
  const V slope = V(kTanhFactor) * (1 + 3 * V(kTanhCubic) * x * x);
  return V(0.5) * (1 + inner) + V(0.5) * x * (1 - inner * inner) * slope;
}

// What is computed otherwise for floats than for integers.
template <typename V>
SPARK_HOST_DEVICE inline V binary_float(BinaryFn fn, V a, V b) {
  if constexpr (std::is_same_v<V, float>) {
    if (f32::covers(fn)) return f32::binary(fn, a, b);
  }
  switch (fn) {
    case BinaryFn::kDiv:
      return a / b;
    case BinaryFn::kPow:
      return std::pow(a, b);
    case BinaryFn::kMod: {
      const V rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case BinaryFn::kFmod:
      return std::fmod(a, b);
    case BinaryFn::kReluGrad:
      return b > 0 ? a : V(0);
    case BinaryFn::kGeluGrad:
      return a * (V(0.5) * (1 + std::erf(b * V(kSqrtHalf))) + b * V(kDensity0) * std::exp(V(-0.5) * b * b));
    case BinaryFn::kGeluTanhGrad:
      return a * gelu_tanh_grad(b);
    case BinaryFn::kSiluGrad:
      return a * (sigmoid(b) * (1 + b * (1 - sigmoid(b))));
    default:
      return a;
  }
}

// a / b towards 0; the one quotient that overflows wraps around.
template <typename V>
SPARK_HOST_DEVICE inline V quotient(V a, V b) {
  if (b == V{0}) return 0;
  if constexpr (std::is_signed_v<V>) {
    if (b == -1) return wrap_sub(V{0}, a);
  }
  return a / b;
}

template <typename V>
SPARK_HOST_DEVICE inline V remainder(V a, V b) {
  return b == V{0} ? V{0} : wrap_sub(a, wrap_mul(quotient(a, b), b));
}

// a^b, modulo 2^64; a negative power is the integer part of the fraction.
template <typename V>
SPARK_HOST_DEVICE inline V power(V a, V b) {
  if (negative(b)) return a == V{1} ? 1 : a + V{1} == V{0} ? (b % 2 == 0 ? V{1} : a) : 0;
  V result = 1;
  for (; b != V{0}; b >>= 1) {
    if (b & 1) result = wrap_mul(result, a);
    a = wrap_mul(a, a);
  }
  return result;
}

template <typename V>
SPARK_HOST_DEVICE inline V binary_integer(BinaryFn fn, V a, V b) {
  switch (fn) {
    case BinaryFn::kDiv:
      return quotient(a, b);
    case BinaryFn::kPow:
      return power(a, b);
    case BinaryFn::kMod: {
      const V rest = remainder(a, b);
      return rest != V{0} && negative(rest) != negative(b) ? rest + b : rest;
    }
    case BinaryFn::kFmod:
      return remainder(a, b);
    case BinaryFn::kBitAnd:
      return a & b;
    case BinaryFn::kBitOr:
      return a | b;
    case BinaryFn::kBitXor:
      return a ^ b;
    case BinaryFn::kShiftLeft: {
      return static_cast<uint64_t>(b) > 63 ? V{0} : static_cast<V>(static_cast<uint64_t>(a) << b);
    }
    case BinaryFn::kShiftRight:
      return static_cast<uint64_t>(b) > 63 ? V{0} : static_cast<V>(a >> b);
    default:
      return a;
  }
}

// fn(a, b); defined_for(fn, V is a float type).
template <typename V>
SPARK_HOST_DEVICE inline V binary_value(BinaryFn fn, V a, V b) {
  switch (fn) {
    case BinaryFn::kAdd:
      return wrap_add(a, b);
    case BinaryFn::kSub:
      return wrap_sub(a, b);
    case BinaryFn::kMul:
      return wrap_mul(a, b);
    case BinaryFn::kMax:
      return greater_of(a, b);
    case BinaryFn::kMin:
      return less_of(a, b);
    case BinaryFn::kPrelu:
      return negative(a) ? wrap_mul(a, b) : a;
    case BinaryFn::kLess:
      return V(a < b);
    case BinaryFn::kLessOrEqual:
      return V(a <= b);
    case BinaryFn::kEqual:
      return V(a == b);
    default:
      if constexpr (std::is_floating_point_v<V>) {
        return binary_float(fn, a, b);
      } else {
        return binary_integer(fn, a, b);
      }
  }
}

// What scatter leaves at a place.
template <typename V>
SPARK_HOST_DEVICE inline V scattered(ScatterFn fn, V old, V update) {
  switch (fn) {
    case ScatterFn::kAdd:
      return wrap_add(old, update);
    case ScatterFn::kMul:
      return wrap_mul(old, update);
    case ScatterFn::kMax:
      return greater_of(old, update);
    case ScatterFn::kMin:
      return less_of(old, update);
    default:
      return update;
  }
}

}  // namespace spark
