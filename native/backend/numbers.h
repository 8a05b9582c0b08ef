// numbers.h: elements of every type as the numbers that are computed with, float, double, int64_t and
// uint64_t, and back. One source for the CPU and the CUDA kernels, so that they cannot differ.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

// What the elements of a type are computed with.
enum class Domain { kFloat, kDouble, kSigned, kUnsigned };

// Not for nvfp4, which has no elements.
SPARK_HOST_DEVICE inline constexpr Domain domain_of_number(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return Domain::kDouble;
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
    case DType::kI4:
    case DType::kI2:
      return Domain::kSigned;
    case DType::kU64:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8:
    case DType::kU4:
    case DType::kU2:
    case DType::kBool:
      return Domain::kUnsigned;
    default:
      return Domain::kFloat;
  }
}

// Integer types, by bits and sign.
struct IntegerType {
  int bits;
  bool is_signed;
};

SPARK_HOST_DEVICE inline constexpr IntegerType integer_type(DType dtype) {
  const bool is_signed = domain_of_number(dtype) == Domain::kSigned;
  switch (dtype) {
    case DType::kI64:
    case DType::kU64:
      return {64, is_signed};
    case DType::kI32:
    case DType::kU32:
      return {32, is_signed};
    case DType::kI16:
    case DType::kU16:
      return {16, is_signed};
    case DType::kI4:
    case DType::kU4:
      return {4, is_signed};
    case DType::kI2:
    case DType::kU2:
      return {2, is_signed};
    case DType::kBool:
      return {1, is_signed};
    default:
      return {8, is_signed};
  }
}

template <typename V>
SPARK_HOST_DEVICE inline bool negative(V x) {
  if constexpr (std::is_unsigned_v<V>) {
    return false;
  } else {
    return x < V{0};
  }
}

// Wraps around where C++ leaves an overflow undefined.
template <typename V>
SPARK_HOST_DEVICE inline V wrap_add(V a, V b) {
  if constexpr (std::is_same_v<V, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename V>
SPARK_HOST_DEVICE inline V wrap_sub(V a, V b) {
  if constexpr (std::is_same_v<V, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  } else {
    return a - b;
  }
}
template <typename V>
SPARK_HOST_DEVICE inline V wrap_mul(V a, V b) {
  if constexpr (std::is_same_v<V, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

// The greater one, NaN if one is; and the less one.
template <typename V>
SPARK_HOST_DEVICE inline V greater_of(V a, V b) {
  return a > b || a != a ? a : b;
}
template <typename V>
SPARK_HOST_DEVICE inline V less_of(V a, V b) {
  return a < b || a != a ? a : b;
}

// The least and the largest number of a type; for floats these are infinite. V is that of its domain.
template <typename V>
SPARK_HOST_DEVICE inline V largest_number(DType dtype) {
  if constexpr (std::is_floating_point_v<V>) {
    return static_cast<V>(bits_float(kInfinityBits));
  } else {
    const IntegerType type = integer_type(dtype);
    return static_cast<V>(~uint64_t{0} >> (64 - type.bits + type.is_signed));
  }
}
template <typename V>
SPARK_HOST_DEVICE inline V least_number(DType dtype) {
  if constexpr (std::is_same_v<V, uint64_t>) {
    return 0;
  } else if constexpr (std::is_same_v<V, int64_t>) {
    return -largest_number<V>(dtype) - 1;
  } else {
    return -largest_number<V>(dtype);
  }
}

// How numbers become elements of another type; see CastArgs.
struct Conversion {
  bool saturate = false;
  Rounding rounding = Rounding::kUp;
};

SPARK_HOST_DEVICE inline uint8_t encode_e8m0(float value, Conversion conversion) {
  const uint32_t bits = float_bits(value) & 0x7FFFFFFF;
  if (bits > kInfinityBits) return 0xFF;
  // 2^-127 is a subnormal f32: half a step of its exponent field.
  const uint32_t exponent = bits >> 23, fraction = bits & 0x7FFFFF;
  const uint32_t half = exponent == 0 ? 0x600000 : 0x400000;
  const bool up = conversion.rounding == Rounding::kUp
                      ? fraction > (exponent == 0 ? 0x400000u : 0u)
                      : conversion.rounding == Rounding::kNearest && fraction >= half;
  const uint32_t code = exponent + up, most = conversion.saturate ? 0xFE : 0xFF;
  return static_cast<uint8_t>(code < most ? code : most);
}

SPARK_HOST_DEVICE inline float decode_e8m0(uint8_t code) {
  return code == 0xFF ? bits_float(kNaNBits) : code == 0 ? bits_float(0x400000) : bits_float(code << 23);
}

// Whatever floats become an integer of 64 bits; see CastArgs.
template <typename V>
SPARK_HOST_DEVICE inline int64_t to_signed(V value) {
  if constexpr (std::is_floating_point_v<V>) {
    if (value != value) return 0;
    if (value >= static_cast<V>(9223372036854775807)) return INT64_MAX;
    if (value <= -static_cast<V>(9223372036854775807)) return INT64_MIN;
  }
  return static_cast<int64_t>(value);
}

template <typename V>
SPARK_HOST_DEVICE inline uint64_t to_unsigned(V value) {
  if constexpr (std::is_floating_point_v<V>) {
    if (value >= static_cast<V>(18446744073709551615u)) return UINT64_MAX;
    if (value >= static_cast<V>(9223372036854775807)) return static_cast<uint64_t>(value);
  }
  return static_cast<uint64_t>(to_signed(value));
}

// Bits of the integer of `type` nearest to `value`.
template <typename V>
SPARK_HOST_DEVICE inline uint64_t saturated(V value, IntegerType type) {
  const uint64_t most = ~uint64_t{0} >> (64 - type.bits + type.is_signed);
  if (!type.is_signed) {
    const uint64_t code = value > V{0} ? to_unsigned(value) : 0;
    return code < most ? code : most;
  }
  if constexpr (std::is_same_v<V, uint64_t>) {
    return value < most ? value : most;
  } else {
    const int64_t number = to_signed(value), top = static_cast<int64_t>(most);
    return static_cast<uint64_t>(number > top ? top : number < -top - 1 ? -top - 1 : number);
  }
}

// Bits of `value` as an integer of `type`, above which they are those of its sign or 0.
template <typename V>
SPARK_HOST_DEVICE inline uint64_t integer_code(V value, IntegerType type, bool saturate) {
  const uint64_t mask = ~uint64_t{0} >> (64 - type.bits);
  if (saturate) return saturated(value, type) & mask;
  const uint64_t bits = type.is_signed ? static_cast<uint64_t>(to_signed(value)) : to_unsigned(value);
  return bits & mask;
}

}  // namespace spark
