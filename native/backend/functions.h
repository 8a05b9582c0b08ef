// functions.h: the functions of elementwise operations, their names and the types they are defined for, all
// from functions.def. Implementations: unary_functions.h, binary_functions.h, float_functions.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "core/float_formats.h"

namespace spark {

// Functions of one number x with parameters α and β.
// all types: abs, neg, sign, relu, not: 1 if x is 0, else 0; integers: bitwise_not
// floats: the functions of <cmath> of the same name; round: ties to even; gelu: x/2 · (1 + erf(x/√2));
// gelu_tanh: x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))); silu: x / (1 + e^-x); swish: x / (1 + e^-αx);
// elu: α·(e^x − 1) below 0; celu: α·(e^(x/α) − 1) below 0; selu: β·elu; leaky_relu: α·x below 0;
// thresholded_relu: x above α, else 0; hard_sigmoid: αx + β within [0, 1]; hard_swish: x · (x/6 + 1/2 within
// [0, 1]); softplus: log(1 + e^x); softsign: x / (1 + |x|); mish: x · tanh(softplus(x)); shrink: x + β below
// −α, x − β above α, else 0; is_nan; is_inf: −∞ counts if α is not 0, +∞ if β is not 0
enum class UnaryFn : uint8_t {
#define SPARK_UNARY(enumerator, name, operands, result, f32) enumerator,
#include "backend/functions.def"
};

// Functions of two numbers. all types: add, sub, mul, div (integers: towards 0; x/0 is 0), pow, max, min (NaN
// wins), mod (sign of b), fmod (sign of a; both are 0 for integers b = 0), prelu: a, or a·b below 0; less,
// less_or_equal, equal: bool. integers: bit_and, bit_or, bit_xor, shift_left, shift_right. floats: <fn>_grad
// is a · fn'(b); relu_grad is 0 where b is not above 0.
enum class BinaryFn : uint8_t {
#define SPARK_BINARY(enumerator, name, operands, result, f32) enumerator,
#include "backend/functions.def"
};

// Names in the order of the enumerators.
constexpr std::initializer_list<const char*> kUnaryNames = {
#define SPARK_UNARY(enumerator, name, operands, result, f32) name,
#include "backend/functions.def"
};
constexpr std::initializer_list<const char*> kBinaryNames = {
#define SPARK_BINARY(enumerator, name, operands, result, f32) name,
#include "backend/functions.def"
};

enum class OperandTypes : uint8_t { kAny, kFloats, kIntegers };
enum class ResultType : uint8_t { kSame, kBool };
// kOwn: float_functions.h, with the same bits on every instruction set; kCmath: <cmath> or an operator.
enum class F32Source : uint8_t { kOwn, kCmath };

SPARK_HOST_DEVICE constexpr OperandTypes operands_of(UnaryFn fn) {
  switch (fn) {
#define SPARK_UNARY(enumerator, name, operands, result, f32) \
  case UnaryFn::enumerator:                                  \
    return OperandTypes::operands;
#include "backend/functions.def"
  }
  return {};
}
SPARK_HOST_DEVICE constexpr OperandTypes operands_of(BinaryFn fn) {
  switch (fn) {
#define SPARK_BINARY(enumerator, name, operands, result, f32) \
  case BinaryFn::enumerator:                                  \
    return OperandTypes::operands;
#include "backend/functions.def"
  }
  return {};
}

SPARK_HOST_DEVICE constexpr ResultType result_of(UnaryFn fn) {
  switch (fn) {
#define SPARK_UNARY(enumerator, name, operands, result, f32) \
  case UnaryFn::enumerator:                                  \
    return ResultType::result;
#include "backend/functions.def"
  }
  return {};
}
SPARK_HOST_DEVICE constexpr ResultType result_of(BinaryFn fn) {
  switch (fn) {
#define SPARK_BINARY(enumerator, name, operands, result, f32) \
  case BinaryFn::enumerator:                                  \
    return ResultType::result;
#include "backend/functions.def"
  }
  return {};
}

SPARK_HOST_DEVICE constexpr F32Source f32_source_of(UnaryFn fn) {
  switch (fn) {
#define SPARK_UNARY(enumerator, name, operands, result, f32) \
  case UnaryFn::enumerator:                                  \
    return F32Source::f32;
#include "backend/functions.def"
  }
  return {};
}
SPARK_HOST_DEVICE constexpr F32Source f32_source_of(BinaryFn fn) {
  switch (fn) {
#define SPARK_BINARY(enumerator, name, operands, result, f32) \
  case BinaryFn::enumerator:                                  \
    return F32Source::f32;
#include "backend/functions.def"
  }
  return {};
}

// Whether there is such a function of floats, or else of integers.
template <typename Fn>
SPARK_HOST_DEVICE constexpr bool defined_for(Fn fn, bool floats) {
  const OperandTypes operands = operands_of(fn);
  return operands == OperandTypes::kAny || (operands == OperandTypes::kFloats) == floats;
}

// Whether the result is bool instead of the type of the operands.
template <typename Fn>
SPARK_HOST_DEVICE constexpr bool returns_bool(Fn fn) {
  return result_of(fn) == ResultType::kBool;
}

// Calls body with fn as a std::integral_constant, so that its code is compiled for each function.
template <typename Body>
void with_constant(UnaryFn fn, const Body& body) {
  switch (fn) {
#define SPARK_UNARY(enumerator, name, operands, result, f32) \
  case UnaryFn::enumerator:                                  \
    return body(std::integral_constant<UnaryFn, UnaryFn::enumerator>{});
#include "backend/functions.def"
  }
}
template <typename Body>
void with_constant(BinaryFn fn, const Body& body) {
  switch (fn) {
#define SPARK_BINARY(enumerator, name, operands, result, f32) \
  case BinaryFn::enumerator:                                  \
    return body(std::integral_constant<BinaryFn, BinaryFn::enumerator>{});
#include "backend/functions.def"
  }
}

}  // namespace spark
