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

// visit(Code{}, decode) of elements of dtype: they are codes of that type, and decode(code) is a number.
template <typename Visit>
__device__ auto visit_codes(DType dtype, const Visit& visit) {
  const auto plain = [](auto code) { return code; };
  const auto decoder = [](auto format) { return [](auto code) { return decltype(format)::decode(code); }; };
  switch (dtype) {
    case DType::kF32:
      return visit(float{}, plain);
    case DType::kF64:
      return visit(double{}, plain);
    case DType::kF16:
      return visit(uint16_t{}, decoder(F16{}));
    case DType::kBF16:
      return visit(uint16_t{}, decoder(BF16{}));
    case DType::kF8E4M3:
      return visit(uint8_t{}, decoder(E4M3{}));
    case DType::kF8E5M2:
      return visit(uint8_t{}, decoder(E5M2{}));
    case DType::kF8E4M3Fnuz:
      return visit(uint8_t{}, decoder(E4M3Fnuz{}));
    case DType::kF8E5M2Fnuz:
      return visit(uint8_t{}, decoder(E5M2Fnuz{}));
    case DType::kF8E8M0:
      return visit(uint8_t{}, [](uint8_t code) { return decode_e8m0(code); });
    case DType::kF4:
      return visit(uint8_t{}, decoder(E2M1{}));
    case DType::kI64:
      return visit(int64_t{}, plain);
    case DType::kI32:
      return visit(int32_t{}, plain);
    case DType::kI16:
      return visit(int16_t{}, plain);
    case DType::kI8:
      return visit(int8_t{}, plain);
    case DType::kI4:
      return visit(uint8_t{}, [](uint8_t code) { return (code & 15) - ((code & 8) << 1); });
    case DType::kI2:
      return visit(uint8_t{}, [](uint8_t code) { return (code & 3) - ((code & 2) << 1); });
    case DType::kU64:
      return visit(uint64_t{}, plain);
    case DType::kU32:
      return visit(uint32_t{}, plain);
    case DType::kU16:
      return visit(uint16_t{}, plain);
    default:
      return visit(uint8_t{}, plain);
  }
}

// The element at base[at]; dtype is of the domain of V.
template <typename V>
__device__ V load_element(DType dtype, const void* base, int64_t at) {
  return visit_codes(dtype, [&](auto zero, const auto& decode) {
    return static_cast<V>(decode(static_cast<const decltype(zero)*>(base)[at]));
  });
}

// Elements in the order in which a loop takes them. Trap: in a loop that is not unrolled an index would put
// them into local memory.
template <typename V, int kCount>
struct Ahead {
  V values[kCount];
  __device__ V next() {
    const V first = values[0];
#pragma unroll
    for (int k = 1; k < kCount; ++k) values[k - 1] = values[k];
    return first;
  }
};

// Elements bases[k][at[k]], all of whose loads are under way before the first is decoded; dtype is of the
// domain of V.
template <typename V, int kCount>
__device__ Ahead<V, kCount> load_ahead(DType dtype, const void* const (&bases)[kCount],
                                       const int64_t (&at)[kCount]) {
  return visit_codes(dtype, [&](auto zero, const auto& decode) {
    decltype(zero) codes[kCount];
    Ahead<V, kCount> ahead;
#pragma unroll
    for (int k = 0; k < kCount; ++k) codes[k] = static_cast<const decltype(zero)*>(bases[k])[at[k]];
#pragma unroll
    for (int k = 0; k < kCount; ++k) ahead.values[k] = static_cast<V>(decode(codes[k]));
    return ahead;
  });
}

template <typename V, int kCount>
__device__ Ahead<V, kCount> load_ahead(DType dtype, const void* base, const int64_t (&at)[kCount]) {
  const void* bases[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) bases[k] = base;
  return load_ahead<V>(dtype, bases, at);
}

// For the positions of this thread below `count`, kCount at a time: compute = load(positions), where those
// beyond the end repeat the first, then compute(position) of each in order. Computing is not unrolled: it has
// the code of every function.
template <int kCount, typename Load>
__device__ void for_each_position(int64_t count, const Load& load) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t first = thread_index(); first < count; first += kCount * step) {
    int64_t positions[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const int64_t position = first + k * step;
      positions[k] = position < count ? position : first;
    }
    auto compute = load(positions);
#pragma unroll 1
    for (int64_t position = first; position < min(count, first + kCount * step); position += step) {
      compute(position);
    }
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
