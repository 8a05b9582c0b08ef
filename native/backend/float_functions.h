// float_functions.h: functions of f32 from additions, multiplications, divisions, comparisons and moves of
// bits alone, so that every instruction set and the GPU give the same bits. F is float or a vector of floats
// (backend/cpu/simd/vector_math.h), of which each element is computed for itself. Errors: docs/numerics.md.
#pragma once

#include <cstring>
#include <type_traits>

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark::f32 {

// An int32_t for each float.
template <typename F>
using Words = std::conditional_t<std::is_same_v<F, float>, int32_t, decltype(F{} < F{})>;

template <typename To, typename From>
SPARK_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename F>
SPARK_HOST_DEVICE inline F splat(float value) {
  return value - F{};  // value + 0 would make 0 of -0
}

// A polynomial in x; its terms begin with that of the highest power.
template <typename F>
SPARK_HOST_DEVICE inline F horner(F, F sum) {
  return sum;
}
template <typename F, typename Term, typename... Terms>
SPARK_HOST_DEVICE inline F horner(F x, F sum, Term term, Terms... terms) {
  return horner(x, sum * x + term, terms...);
}
template <typename F, typename Term, typename... Terms>
SPARK_HOST_DEVICE inline F polynomial(F x, Term first, Terms... terms) {
  return horner(x, first - F{}, terms...);
}

template <typename F>
SPARK_HOST_DEVICE inline F magnitude(F x) {
  return bits_as<F>(bits_as<Words<F>>(x) & 0x7FFFFFFF);
}

template <typename F>
SPARK_HOST_DEVICE inline F with_sign(F x, F of) {
  return bits_as<F>(bits_as<Words<F>>(x) | (bits_as<Words<F>>(of) & ~0x7FFFFFFF));
}

// e^x = 2^n · e^r with |r| <= ln(2)/2, e^r by its Taylor series up to r^7. ln(2) is taken away in two parts,
// the first of which is exact in products with n. 2^n is applied in two steps, so that subnormal results and
// infinity come out right.
template <typename F>
SPARK_HOST_DEVICE inline F exp(F x) {
  constexpr float kRound = 12582912;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  constexpr float kLowest = -104, kHighest = 89;  // beyond these 0 and infinity
  x = x < kLowest ? splat<F>(kLowest) : x;        // a NaN stays
  x = x > kHighest ? splat<F>(kHighest) : x;
  const F shifted = x * 1.44269504f + kRound;
  const F whole = shifted - kRound;
  const F r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  const F series = polynomial(r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f);
  const Words<F> n = bits_as<Words<F>>(shifted) - 0x4B400000;
  const Words<F> half = n >> 1;
  return series * bits_as<F>((half + 127) << 23) * bits_as<F>((n - half + 127) << 23);
}

// e^x − 1, near 0 by its Taylor series.
template <typename F>
SPARK_HOST_DEVICE inline F expm1(F x) {
  const F series =
      x * polynomial(x, 1.0f / 40320, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f);
  return magnitude(x) < 0.5f ? series : exp(x) - 1;
}

// x = 2^n · (1 + f) with f from √½ − 1 to √2 − 1. With s = f / (2 + f), ln(1 + f) = 2 · artanh(s)
// = f − f²/2 + s · (f²/2 + R), R the terms of 2 · artanh(s) / s behind the first.
template <typename F>
SPARK_HOST_DEVICE inline F log(F x) {
  constexpr float kLeast = 1.17549435e-38f;  // normal
  const F scaled = x < kLeast ? x * 8388608.0f : x;
  const Words<F> bits = bits_as<Words<F>>(magnitude(scaled)) - 0x3F3504F3;  // √½
  const Words<F> n = (bits >> 23) - (x < kLeast ? Words<F>{} + 23 : Words<F>{});
  const F f = bits_as<F>((bits & 0x7FFFFF) + 0x3F3504F3) - 1;
  const F s = f / (2 + f), square = s * s, half = 0.5f * f * f;
  const F rest = square * polynomial(square, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3);
  const F exponent = bits_as<F>(n + 0x4B400000) - 12582912;
  const F low = s * (half + rest) + exponent * -2.12194440e-4f;
  const F result = exponent * 0.693359375f + (f - (half - low));
  const float infinity = bits_float(kInfinityBits);
  const F special = x == 0 ? splat<F>(-infinity) : splat<F>(bits_float(kNaNBits));
  const F ordinary = x < infinity ? result : x;  // infinity and NaN stay
  return x <= 0 ? special : ordinary;
}

// Below ½ the Taylor series up to x^15, beyond it 1 − 2 / (e^2|x| + 1).
template <typename F>
SPARK_HOST_DEVICE inline F tanh(F x) {
  const F square = x * x;
  const F series = x * polynomial(square, -1.45583438e-3f, 3.59212803e-3f, -8.86323553e-3f, 2.18694885e-2f,
                                  -5.39682540e-2f, 0.133333333f, -0.333333333f, 1.0f);
  const F beyond = 1 - 2 / (exp(2 * magnitude(x)) + 1);
  return magnitude(x) < 0.5f ? series : with_sign(beyond, x);
}

// Below 1 the Maclaurin series up to x^21, beyond it formula 7.1.26 of Abramowitz and Stegun, whose error is
// at most 1.5e-7.
template <typename F>
SPARK_HOST_DEVICE inline F erf(F x) {
  const F z = magnitude(x), square = z * z;
  const F series = polynomial(square, 1.0f / (21 * 3628800.0f), -1.0f / (19 * 362880), 1.0f / (17 * 40320),
                              -1.0f / (15 * 5040), 1.0f / (13 * 720), -1.0f / (11 * 120), 1.0f / (9 * 24),
                              -1.0f / (7 * 6), 0.1f, -1.0f / 3, 1.0f);
  const F t = 1 / (1 + 0.3275911f * z);
  const F tail = t * polynomial(t, 1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f);
  return with_sign(z < 1 ? 1.12837917f * z * series : 1 - tail * exp(-square), x);
}

template <typename F>
SPARK_HOST_DEVICE inline F sigmoid(F x) {
  return 1 / (1 + exp(-x));
}

// max(x, 0) + ln(1 + u) with u = e^-|x|; what 1 + u rounds away is added again.
template <typename F>
SPARK_HOST_DEVICE inline F softplus(F x) {
  const F u = exp(-magnitude(x)), sum = 1 + u;
  const F positive = x < 0 ? F{} : x;
  return positive + (log(sum) + (u - (sum - 1)) / sum);
}

template <typename F>
SPARK_HOST_DEVICE inline F gelu(F x) {
  return 0.5f * x * (1 + erf(x * 0.70710678f));
}

// 1 + tanh(z) = 2 · sigmoid(2 · z), without the cancellation.
template <typename F>
SPARK_HOST_DEVICE inline F gelu_tanh(F x) {
  return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
}

// x · tanh(ln(1 + e^x)): with u = e^x it is x · n / (n + 2), n = u · (u + 2).
template <typename F>
SPARK_HOST_DEVICE inline F mish(F x) {
  const F u = exp(x), n = u * (u + 2);
  return x > 20 ? x : x * (n / (n + 2));
}

template <typename F>
SPARK_HOST_DEVICE inline F unit_clamp(F x) {
  const F positive = x < 0 ? F{} : x;
  return positive > 1 ? splat<F>(1) : positive;
}

// Whether fn is computed here.
template <typename Fn>
SPARK_HOST_DEVICE constexpr bool covers(Fn fn) {
  return f32_source_of(fn) == F32Source::kOwn;
}

// fn(x); covers(fn).
template <typename F>
SPARK_HOST_DEVICE inline F unary(UnaryFn fn, F x, float alpha, float beta) {
  switch (fn) {
    case UnaryFn::kRelu:
      return x < 0 ? F{} : x;  // NaN stays NaN
    case UnaryFn::kExp:
      return exp(x);
    case UnaryFn::kLog:
      return log(x);
    case UnaryFn::kErf:
      return erf(x);
    case UnaryFn::kTanh:
      return tanh(x);
    case UnaryFn::kSigmoid:
      return sigmoid(x);
    case UnaryFn::kGelu:
      return gelu(x);
    case UnaryFn::kGeluTanh:
      return gelu_tanh(x);
    case UnaryFn::kSilu:
      return x * sigmoid(x);
    case UnaryFn::kSwish:
      return x * sigmoid(alpha * x);
    case UnaryFn::kElu:
      return x < 0 ? alpha * expm1(x) : x;
    case UnaryFn::kCelu:
      return x < 0 ? alpha * expm1(x / alpha) : x;
    case UnaryFn::kSelu:
      return beta * (x < 0 ? alpha * expm1(x) : x);
    case UnaryFn::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case UnaryFn::kThresholdedRelu:
      return (x > alpha) | (x != x) ? x : F{};  // NaN stays NaN, and nothing is above it
    case UnaryFn::kHardSigmoid:
      return unit_clamp(alpha * x + beta);
    case UnaryFn::kHardSwish:
      return x * unit_clamp(x / 6 + 0.5f);
    case UnaryFn::kSoftplus:
      return softplus(x);
    case UnaryFn::kSoftsign:
      return x / (1 + magnitude(x));
    case UnaryFn::kMish:
      return mish(x);
    default:
      return x;
  }
}

// fn(a, b); covers(fn).
template <typename F>
SPARK_HOST_DEVICE inline F binary(BinaryFn fn, F a, F b) {
  switch (fn) {
    case BinaryFn::kGeluGrad:
      return a * (0.5f * (1 + erf(b * 0.70710678f)) + b * 0.39894228f * exp(-0.5f * b * b));
    case BinaryFn::kGeluTanhGrad: {
      const F gate = sigmoid(1.59576912f * (b + 0.044715f * b * b * b));
      const F slope = 1.59576912f * (1 + 0.134145f * b * b);
      return a * (gate + b * gate * (1 - gate) * slope);
    }
    case BinaryFn::kSiluGrad: {
      const F gate = sigmoid(b);
      return a * (gate * (1 + b * (1 - gate)));
    }
    default:
      return a;
  }
}

}  // namespace spark::f32
