// saturate.cuh: rounding to bytes.
#pragma once

#include "core/float_formats.h"

namespace spark {
namespace {

// round(value) + zero in i8 or u8, to nearest even; a NaN gives 0. zero is a number of that type.
__device__ uint8_t saturated(float value, int32_t zero, bool is_signed) {
  // Limits are taken before rounding, which gives the same and leaves small integers: adding 1.5 · 2^23
  // rounds them into the low bits.
  constexpr float kRound = 12582912;
  const float lowest = static_cast<float>((is_signed ? -128 : 0) - zero), highest = lowest + 255;
  const float number = value == value ? value : static_cast<float>(-zero);
  const float limited = fminf(fmaxf(number, lowest), highest);
  return static_cast<uint8_t>(float_bits(limited + kRound) - 0x4B400000u + static_cast<uint32_t>(zero));
}

}  // namespace
}  // namespace spark
