#include "backend/cpu/elements.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

// Integer types, by bits and sign.
struct IntegerType {
  int bits;
  bool is_signed;
};

IntegerType integer_type(DType dtype) {
  switch (dtype) {
    case DType::kI2:
      return {2, true};
    case DType::kU2:
      return {2, false};
    case DType::kI4:
      return {4, true};
    case DType::kU4:
      return {4, false};
    case DType::kBool:
      return {1, false};
    default:
      return {static_cast<int>(dtype_bits(dtype)), domain_of(dtype) == Domain::kSigned};
  }
}

Error no_elements(DType dtype) {
  return Error("ERR_DTYPE", message(dtype_name(dtype), " has no elements to compute with"));
}

template <typename S, typename V, typename Decode>
void load_as(const void* base, int64_t offset, int64_t step, int64_t count, V* values, const Decode& decode) {
  const S* from = static_cast<const S*>(base) + offset;
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<V>(decode(from[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<V>(decode(from[i * step]));
  }
}

template <typename S, typename V, typename Encode>
void store_as(const V* values, int64_t count, void* base, int64_t offset, int64_t step,
              const Encode& encode) {
  S* to = static_cast<S*>(base) + offset;
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<S>(encode(values[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * step] = static_cast<S>(encode(values[i]));
  }
}

uint8_t encode_e8m0(float value, Conversion conversion) {
  const uint32_t bits = float_bits(value) & 0x7FFFFFFF;
  if (bits > kInfinityBits) return 0xFF;
  // 2^-127 is a subnormal f32: half a step of its exponent field.
  const uint32_t exponent = bits >> 23, fraction = bits & 0x7FFFFF;
  const uint32_t half = exponent == 0 ? 0x600000 : 0x400000;
  const bool up = conversion.rounding == Rounding::kUp
                      ? fraction > (exponent == 0 ? 0x400000u : 0u)
                      : conversion.rounding == Rounding::kNearest && fraction >= half;
  return static_cast<uint8_t>(std::min<uint32_t>(exponent + up, conversion.saturate ? 0xFE : 0xFF));
}

// Whatever floats become an integer of 64 bits; see CastArgs.
template <typename V>
int64_t to_signed(V value) {
  if constexpr (std::is_floating_point_v<V>) {
    if (value != value) return 0;
    if (value >= static_cast<V>(9223372036854775807)) return INT64_MAX;
    if (value <= -static_cast<V>(9223372036854775807)) return INT64_MIN;
  }
  return static_cast<int64_t>(value);
}

template <typename V>
uint64_t to_unsigned(V value) {
  if constexpr (std::is_floating_point_v<V>) {
    if (value >= static_cast<V>(18446744073709551615u)) return UINT64_MAX;
    if (value >= static_cast<V>(9223372036854775807)) return static_cast<uint64_t>(value);
  }
  return static_cast<uint64_t>(to_signed(value));
}

// Bits of the integer of `type` nearest to `value`.
template <typename V>
uint64_t saturated(V value, IntegerType type) {
  const uint64_t most = ~uint64_t{0} >> (64 - type.bits + type.is_signed);
  if (!type.is_signed) return value > V{0} ? std::min(to_unsigned(value), most) : 0;
  if constexpr (std::is_same_v<V, uint64_t>) return std::min(value, most);
  return static_cast<uint64_t>(
      std::clamp<int64_t>(to_signed(value), -static_cast<int64_t>(most) - 1, static_cast<int64_t>(most)));
}

template <typename S, typename V>
void store_integers(DType dtype, const V* values, int64_t count, void* base, int64_t offset, int64_t step,
                    bool saturate) {
  const IntegerType type = integer_type(dtype);
  if (saturate) {
    const uint64_t mask = ~uint64_t{0} >> (64 - type.bits);
    return store_as<S>(values, count, base, offset, step, [&](V v) { return saturated(v, type) & mask; });
  }
  if (type.bits < 8) {
    const uint64_t mask = (uint64_t{1} << type.bits) - 1;
    return store_as<S>(values, count, base, offset, step, [&](V v) {
      return (type.is_signed ? static_cast<uint64_t>(to_signed(v)) : to_unsigned(v)) & mask;
    });
  }
  if (type.is_signed) return store_as<S>(values, count, base, offset, step, [](V v) { return to_signed(v); });
  store_as<S>(values, count, base, offset, step, [](V v) { return to_unsigned(v); });
}

template <typename V>
void load_floats(DType dtype, const void* base, int64_t offset, int64_t step, int64_t count, V* values) {
  switch (dtype) {
    case DType::kF32:
      return load_as<float>(base, offset, step, count, values, [](float x) { return x; });
    case DType::kF16:
      return load_as<uint16_t>(base, offset, step, count, values, F16::decode);
    case DType::kBF16:
      return load_as<uint16_t>(base, offset, step, count, values, BF16::decode);
    case DType::kF8E4M3:
      return load_as<uint8_t>(base, offset, step, count, values, E4M3::decode);
    case DType::kF8E5M2:
      return load_as<uint8_t>(base, offset, step, count, values, E5M2::decode);
    case DType::kF8E4M3Fnuz:
      return load_as<uint8_t>(base, offset, step, count, values, E4M3Fnuz::decode);
    case DType::kF8E5M2Fnuz:
      return load_as<uint8_t>(base, offset, step, count, values, E5M2Fnuz::decode);
    case DType::kF8E8M0:
      return load_as<uint8_t>(base, offset, step, count, values, [](uint8_t code) {
        return code == 0xFF ? bits_float(kNaNBits)
               : code == 0  ? bits_float(0x400000)
                            : bits_float(code << 23);
      });
    default:
      return load_as<uint8_t>(base, offset, step, count, values, E2M1::decode);
  }
}

template <typename V>
void load_integers(DType dtype, const void* base, int64_t offset, int64_t step, int64_t count, V* values) {
  const auto load = [&](auto element) {
    load_as<decltype(element)>(base, offset, step, count, values, [](auto x) { return x; });
  };
  switch (dtype) {
    case DType::kI64:
      return load(int64_t{});
    case DType::kI32:
      return load(int32_t{});
    case DType::kI16:
      return load(int16_t{});
    case DType::kI8:
      return load(int8_t{});
    case DType::kI4:
      return load_as<uint8_t>(base, offset, step, count, values,
                              [](int code) { return (code & 15) - ((code & 8) << 1); });
    case DType::kI2:
      return load_as<uint8_t>(base, offset, step, count, values,
                              [](int code) { return (code & 3) - ((code & 2) << 1); });
    case DType::kU64:
      return load(uint64_t{});
    case DType::kU32:
      return load(uint32_t{});
    case DType::kU16:
      return load(uint16_t{});
    default:
      return load(uint8_t{});
  }
}

template <typename Format, typename V>
void store_format(const V* values, int64_t count, void* base, int64_t offset, int64_t step, bool saturate) {
  const uint32_t limit = cast_limit<Format>(saturate);
  store_as<typename Format::Code>(values, count, base, offset, step,
                                  [&](V v) { return Format::encode(static_cast<float>(v), limit); });
}

}  // namespace

Domain domain_of(DType dtype) {
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
    case DType::kNVFP4:
      throw no_elements(dtype);
    default:
      return Domain::kFloat;
  }
}

template <typename V>
void load_elements(DType dtype, const void* base, int64_t offset, int64_t step, int64_t count, V* values) {
  if constexpr (std::is_same_v<V, float>) {
    load_floats(dtype, base, offset, step, count, values);
  } else if constexpr (std::is_same_v<V, double>) {
    load_as<double>(base, offset, step, count, values, [](double x) { return x; });
  } else {
    load_integers(dtype, base, offset, step, count, values);
  }
}

template <typename V>
void store_elements(DType dtype, const V* values, int64_t count, void* base, int64_t offset, int64_t step,
                    Conversion conversion) {
  const auto integers = [&](auto element) {
    store_integers<decltype(element)>(dtype, values, count, base, offset, step, conversion.saturate);
  };
  const auto format = [&](auto format) {
    store_format<decltype(format)>(values, count, base, offset, step, conversion.saturate);
  };
  switch (dtype) {
    case DType::kF32:
      return store_as<float>(values, count, base, offset, step, [](V v) { return v; });
    case DType::kF64:
      return store_as<double>(values, count, base, offset, step, [](V v) { return v; });
    case DType::kF16:
      return format(F16{});
    case DType::kBF16:
      return format(BF16{});
    case DType::kF8E4M3:
      return format(E4M3{});
    case DType::kF8E5M2:
      return format(E5M2{});
    case DType::kF8E4M3Fnuz:
      return format(E4M3Fnuz{});
    case DType::kF8E5M2Fnuz:
      return format(E5M2Fnuz{});
    case DType::kF4:
      return store_as<uint8_t>(values, count, base, offset, step, [](V v) {
        return v != v ? 0 : E2M1::encode(static_cast<float>(v), E2M1::limit(true));
      });
    case DType::kF8E8M0:
      return store_as<uint8_t>(values, count, base, offset, step,
                               [&](V v) { return encode_e8m0(static_cast<float>(v), conversion); });
    case DType::kBool:
      return store_as<uint8_t>(values, count, base, offset, step, [](V v) { return v != V{0}; });
    case DType::kI64:
      return integers(int64_t{});
    case DType::kU64:
      return integers(uint64_t{});
    case DType::kI32:
      return integers(int32_t{});
    case DType::kU32:
      return integers(uint32_t{});
    case DType::kI16:
      return integers(int16_t{});
    case DType::kU16:
      return integers(uint16_t{});
    case DType::kI8:
      return integers(int8_t{});
    case DType::kU8:
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kU2:
      return integers(uint8_t{});
    case DType::kNVFP4:
      throw no_elements(dtype);
  }
}

template <typename V>
V least_number(DType dtype) {
  if constexpr (std::is_floating_point_v<V>) return -std::numeric_limits<V>::infinity();
  if constexpr (std::is_same_v<V, uint64_t>) return 0;
  return static_cast<V>(-largest_number<V>(dtype) - 1);
}

template <typename V>
V largest_number(DType dtype) {
  if constexpr (std::is_floating_point_v<V>) return std::numeric_limits<V>::infinity();
  const IntegerType type = integer_type(dtype);
  return static_cast<V>(~uint64_t{0} >> (64 - type.bits + type.is_signed));
}

#define SPARK_NUMBER(V)                                                                           \
  template void load_elements<V>(DType, const void*, int64_t, int64_t, int64_t, V*);              \
  template void store_elements<V>(DType, const V*, int64_t, void*, int64_t, int64_t, Conversion); \
  template V least_number<V>(DType);                                                              \
  template V largest_number<V>(DType);
SPARK_NUMBER(float)
SPARK_NUMBER(double)
SPARK_NUMBER(int64_t)
SPARK_NUMBER(uint64_t)
#undef SPARK_NUMBER

}  // namespace spark::cpu
