// vector_math.h: as many floats at a time as a register has, for translation units of any instruction set:
// all is inlined. Their functions are those of backend/float_functions.h. GCC compares and chooses between
// elements of vectors one by one where those are longer than a register.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "backend/float_functions.h"

namespace spark::cpu::vector_math {

#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif
using Floats = float __attribute__((vector_size(kLanes * 4)));
using Words = f32::Words<Floats>;
using Doubles = double __attribute__((vector_size(kLanes * 8)));
using Longs = uint64_t __attribute__((vector_size(kLanes * 8)));

// 1.5 · 2^52: adding it leaves the nearest integer in the low bits.
constexpr double kRound = 6755399441055744;
constexpr uint64_t kRoundBits = 0x4338000000000000;

#define SPARK_INLINE __attribute__((always_inline)) inline

SPARK_INLINE Floats load(const float* from) {
  Floats values;
  __builtin_memcpy(&values, from, sizeof(values));
  return values;
}

SPARK_INLINE Floats splat(float value) { return f32::splat<Floats>(value); }

// `count` < kLanes elements; `fill` in the place of the others.
SPARK_INLINE Floats load_some(const float* from, int64_t count, float fill) {
#if defined(__AVX512F__)
  return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), (1u << count) - 1, from);
#else
  Floats values = splat(fill);
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return values;
#endif
}

// The first `count` elements.
SPARK_INLINE void store(float* to, Floats values, int64_t count = kLanes) {
  if (count >= kLanes) {
    __builtin_memcpy(to, &values, sizeof(values));
    return;
  }
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, (1u << count) - 1, values);
#else
  for (int64_t i = 0; i < count; ++i) to[i] = values[i];
#endif
}

SPARK_INLINE Doubles splat_double(double value) { return value - Doubles{}; }

// log2(x) of finite x > 0 that are normal in double: x = 2^n · m with m from √½ to √2, and the series of
// artanh in s = (m − 1) / (m + 1) up to s^13.
SPARK_INLINE Doubles log2(Doubles x) {
  constexpr uint64_t kRootHalf = 0x3FE6A09E667F3BCD, kOne = 0x3FF0000000000000;
  const Longs bits = f32::bits_as<Longs>(x) + (kOne - kRootHalf);
  const Doubles m = f32::bits_as<Doubles>((bits & 0xFFFFFFFFFFFFF) + kRootHalf);
  const Doubles s = (m - 1) / (m + 1);
  const Doubles series = f32::polynomial(s * s, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 0.2, 1.0 / 3, 1.0);
  const Doubles n = f32::bits_as<Doubles>((bits >> 52) + kRoundBits) - (kRound + 1023);
  return n + s * series * 2.8853900817779268;  // 2 / ln(2)
}

// 2^x of |x| <= 1000, e^r by its Taylor series up to r^10.
SPARK_INLINE Doubles exp2(Doubles x) {
  const Doubles shifted = x + kRound;
  const Doubles r = (x - (shifted - kRound)) * 0.69314718055994531;
  const Doubles series = f32::polynomial(r, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                         1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  return series * f32::bits_as<Doubles>((f32::bits_as<Longs>(shifted) - kRoundBits + 1023) << 52);
}

// x^y as C defines it, by way of double.
SPARK_INLINE Floats pow(Floats x, Floats y) {
  const Floats size = f32::magnitude(x), infinity = splat(__builtin_inff());
  Doubles exponent = __builtin_convertvector(y, Doubles) * log2(__builtin_convertvector(size, Doubles));
  exponent = exponent > 1000 ? splat_double(1000) : exponent;
  exponent = exponent < -1000 ? splat_double(-1000) : exponent;
  Floats result = __builtin_convertvector(exp2(exponent), Floats);
  // |x| at its ends, where log2 is not meant for it.
  result = (size == 0) | (size == infinity) ? ((size == 0) == (y < 0) ? infinity : Floats{}) : result;
  result = size == 1 ? splat(1) : result;
  const Floats rounded = __builtin_convertvector(__builtin_convertvector(y, Words), Floats);
  const auto large = f32::magnitude(y) >= 16777216.0f;  // even, or infinite
  const auto odd = ~large & (rounded == y) & ((__builtin_convertvector(y, Words) & 1) != 0);
  const auto whole = large | (rounded == y);
  const Floats negative = odd ? f32::with_sign(result, x) : result;
  const auto below = x < 0;
  result = below & ~whole & (size != infinity) ? splat(__builtin_nanf("")) : negative;
  result = (x != x) | (y != y) ? x + y : result;
  return (y == 0) | (x == 1) ? splat(1) : result;
}

#undef SPARK_INLINE

}  // namespace spark::cpu::vector_math
