// vector_math.h: functions of 16 floats at a time, for translation units of any instruction set: all is
// inlined. The errors stand in docs/numerics.md.
#pragma once

#include <cstdint>

namespace spark::cpu::vector_math {

constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * 4)));
using Words = int32_t __attribute__((vector_size(kLanes * 4)));

#define SPARK_INLINE __attribute__((always_inline)) inline

SPARK_INLINE Floats load(const float* from) {
  Floats values;
  __builtin_memcpy(&values, from, sizeof(values));
  return values;
}

SPARK_INLINE Floats splat(float value) { return value - Floats{}; }

// e^x = 2^n · e^r with |r| <= ln(2)/2, e^r by its Taylor series up to r^7. ln(2) is taken away in two parts,
// the first of which is exact in products with n. 2^n is applied in two steps, so that subnormal results and
// infinity come out right.
SPARK_INLINE Floats exp(Floats x) {
  constexpr float kRound = 12582912;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  constexpr float kLowest = -104, kHighest = 89;  // beyond these 0 and infinity
  x = x < kLowest ? splat(kLowest) : x;           // a NaN stays
  x = x > kHighest ? splat(kHighest) : x;
  const Floats shifted = x * 1.44269504f + kRound;
  const Floats whole = shifted - kRound;
  const Floats r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  constexpr float kTerms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  Floats series = splat(1.0f / 5040);
#pragma GCC unroll 7
  for (int i = 0; i < 7; ++i) series = series * r + kTerms[i];
  const Words n = (Words)shifted - 0x4B400000;
  const Words half = n >> 1;
  return series * (Floats)((half + 127) << 23) * (Floats)((n - half + 127) << 23);
}

#undef SPARK_INLINE

}  // namespace spark::cpu::vector_math
