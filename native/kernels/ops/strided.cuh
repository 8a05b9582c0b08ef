// strided.cuh: offsets of strided operands of elementwise kernels, and their elements as numbers.
#pragma once

#include "backend/numbers.h"

namespace spark {

// The number of this thread; grids and blocks have one dimension.
__device__ inline int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Calls move(axis, index) for the index along each axis at a row-major position.
template <typename Position, typename Move>
__device__ void for_each_axis(const Axes& axes, Position position, const Move& move) {
  for (int64_t axis = axes.count - 1; axis >= 0; --axis) {
    const Position size = static_cast<Position>(axes.size[axis]), rest = position / size;
    move(axis, static_cast<int64_t>(position - rest * size));
    position = rest;
  }
}

// Divisions of 64 bits cost several times those of 32.
template <typename Move>
__device__ void at_position(const Axes& axes, int64_t position, const Move& move) {
  if (numel(axes) < (int64_t{1} << 32)) {
    for_each_axis(axes, static_cast<uint32_t>(position), move);
  } else {
    for_each_axis(axes, position, move);
  }
}

// How far an operand has moved at a row-major position of the axes.
__device__ inline int64_t offset_at(const Axes& axes, const Strides& strides, int64_t position) {
  int64_t offset = 0;
  at_position(axes, position, [&](int64_t axis, int64_t index) { offset += index * strides.step[axis]; });
  return offset;
}

// The element at base[at]; dtype is of the domain of V.
template <typename V>
__device__ V load_element(DType dtype, const void* base, int64_t at) {
  const auto as = [&](auto zero) { return static_cast<const decltype(zero)*>(base)[at]; };
  switch (dtype) {
    case DType::kF32:
      return static_cast<V>(as(float{}));
    case DType::kF64:
      return static_cast<V>(as(double{}));
    case DType::kF16:
      return static_cast<V>(F16::decode(as(uint16_t{})));
    case DType::kBF16:
      return static_cast<V>(BF16::decode(as(uint16_t{})));
    case DType::kF8E4M3:
      return static_cast<V>(E4M3::decode(as(uint8_t{})));
    case DType::kF8E5M2:
      return static_cast<V>(E5M2::decode(as(uint8_t{})));
    case DType::kF8E4M3Fnuz:
      return static_cast<V>(E4M3Fnuz::decode(as(uint8_t{})));
    case DType::kF8E5M2Fnuz:
      return static_cast<V>(E5M2Fnuz::decode(as(uint8_t{})));
    case DType::kF8E8M0:
      return static_cast<V>(decode_e8m0(as(uint8_t{})));
    case DType::kF4:
      return static_cast<V>(E2M1::decode(as(uint8_t{})));
    case DType::kI64:
      return static_cast<V>(as(int64_t{}));
    case DType::kI32:
      return static_cast<V>(as(int32_t{}));
    case DType::kI16:
      return static_cast<V>(as(int16_t{}));
    case DType::kI8:
      return static_cast<V>(as(int8_t{}));
    case DType::kI4:
      return static_cast<V>((as(uint8_t{}) & 15) - ((as(uint8_t{}) & 8) << 1));
    case DType::kI2:
      return static_cast<V>((as(uint8_t{}) & 3) - ((as(uint8_t{}) & 2) << 1));
    case DType::kU64:
      return static_cast<V>(as(uint64_t{}));
    case DType::kU32:
      return static_cast<V>(as(uint32_t{}));
    case DType::kU16:
      return static_cast<V>(as(uint16_t{}));
    default:
      return static_cast<V>(as(uint8_t{}));
  }
}

// base[at] = value as an element of any type.
template <typename V>
__device__ void store_element(DType dtype, V value, void* base, int64_t at, Conversion conversion = {}) {
  const auto put = [&](auto element) { static_cast<decltype(element)*>(base)[at] = element; };
  const auto format = [&](auto format) {
    using Format = decltype(format);
    put(Format::encode(static_cast<float>(value), cast_limit<Format>(conversion.saturate)));
  };
  switch (dtype) {
    case DType::kF32:
      return put(static_cast<float>(value));
    case DType::kF64:
      return put(static_cast<double>(value));
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
    case DType::kF8E8M0:
      return put(encode_e8m0(static_cast<float>(value), conversion));
    case DType::kF4:
      return put(value != value ? uint8_t{0} : E2M1::encode(static_cast<float>(value), E2M1::limit(true)));
    case DType::kBool:
      return put(static_cast<uint8_t>(value != V{0}));
    default:
      break;
  }
  const uint64_t code = integer_code(value, integer_type(dtype), conversion.saturate);
  switch (integer_type(dtype).bits) {
    case 64:
      return put(code);
    case 32:
      return put(static_cast<uint32_t>(code));
    case 16:
      return put(static_cast<uint16_t>(code));
    default:
      return put(static_cast<uint8_t>(code));
  }
}

}  // namespace spark

// SPARK_FOR_EACH_NUMBER(DEFINE): DEFINE(name, type) for everything that elements are computed with, and
// SPARK_FOR_EACH_SIZE(DEFINE): DEFINE(bits, type) for elements that are only moved.
#define SPARK_FOR_EACH_NUMBER(DEFINE) \
  DEFINE(float, float)                \
  DEFINE(double, double)              \
  DEFINE(signed, int64_t)             \
  DEFINE(unsigned, uint64_t)
#define SPARK_FOR_EACH_SIZE(DEFINE) \
  DEFINE(8, uint8_t)                \
  DEFINE(16, uint16_t)              \
  DEFINE(32, uint32_t)              \
  DEFINE(64, uint64_t)
