// elements.cc: conversion of elements of every dtype to and from numbers.
#include "backend/cpu/elements.h"

#include "core/error.h"

namespace spark::cpu {
namespace {

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

template <typename S, typename V>
void store_integers(DType dtype, const V* values, int64_t count, void* base, int64_t offset, int64_t step,
                    bool saturate) {
  const IntegerType type = integer_type(dtype);
  if (saturate || type.bits < 8) {
    return store_as<S>(values, count, base, offset, step,
                       [&](V v) { return integer_code(v, type, saturate); });
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
      return load_as<uint8_t>(base, offset, step, count, values,
                              [](uint8_t code) { return decode_e8m0(code); });
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
  if (dtype == DType::kNVFP4) throw no_elements(dtype);
  return domain_of_number(dtype);
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

#define SPARK_NUMBER(V)                                                              \
  template void load_elements<V>(DType, const void*, int64_t, int64_t, int64_t, V*); \
  template void store_elements<V>(DType, const V*, int64_t, void*, int64_t, int64_t, Conversion);
SPARK_NUMBER(float)
SPARK_NUMBER(double)
SPARK_NUMBER(int64_t)
SPARK_NUMBER(uint64_t)
#undef SPARK_NUMBER

}  // namespace spark::cpu
