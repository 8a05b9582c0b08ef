#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/functions.h"
#include "backend/cpu/strided.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

bool compares(BinaryFn fn) {
  return fn == BinaryFn::kLess || fn == BinaryFn::kLessOrEqual || fn == BinaryFn::kEqual;
}

template <typename V>
V gelu_tanh_grad(V x) {
  const V inner = gelu_inner(x);
  const V slope = V(kTanhFactor) * (1 + 3 * V(kTanhCubic) * x * x);
  return V(0.5) * (1 + inner) + V(0.5) * x * (1 - inner * inner) * slope;
}

template <typename V, typename Body>
bool with_float_function(BinaryFn fn, const Body& body) {
  switch (fn) {
    case BinaryFn::kDiv:
      body([](V a, V b) { return a / b; });
      return true;
    case BinaryFn::kPow:
      body([](V a, V b) { return std::pow(a, b); });
      return true;
    case BinaryFn::kMod:
      body([](V a, V b) {
        const V rest = std::fmod(a, b);
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
      });
      return true;
    case BinaryFn::kFmod:
      body([](V a, V b) { return std::fmod(a, b); });
      return true;
    case BinaryFn::kReluGrad:
      body([](V a, V b) { return b > 0 ? a : V(0); });
      return true;
    case BinaryFn::kGeluGrad:
      body([](V a, V b) {
        return a * (V(0.5) * (1 + std::erf(b * V(kSqrtHalf))) + b * V(kDensity0) * std::exp(V(-0.5) * b * b));
      });
      return true;
    case BinaryFn::kGeluTanhGrad:
      body([](V a, V b) { return a * gelu_tanh_grad(b); });
      return true;
    case BinaryFn::kSiluGrad:
      body([](V a, V b) { return a * (sigmoid(b) * (1 + b * (1 - sigmoid(b)))); });
      return true;
    default:
      return false;
  }
}

// a / b towards 0; the one quotient that overflows wraps around.
template <typename V>
V quotient(V a, V b) {
  if (b == V{0}) return 0;
  if constexpr (std::is_signed_v<V>) {
    if (b == -1) return wrap_sub(V{0}, a);
  }
  return a / b;
}

template <typename V>
V remainder(V a, V b) {
  return b == V{0} ? V{0} : wrap_sub(a, wrap_mul(quotient(a, b), b));
}

// a^b, modulo 2^64; a negative power is the integer part of the fraction.
template <typename V>
V power(V a, V b) {
  if (b < V{0}) return a == V{1} ? 1 : a + V{1} == V{0} ? (b % 2 == 0 ? V{1} : a) : 0;
  V result = 1;
  for (; b != V{0}; b >>= 1) {
    if (b & 1) result = wrap_mul(result, a);
    a = wrap_mul(a, a);
  }
  return result;
}

template <typename V, typename Body>
bool with_integer_function(BinaryFn fn, const Body& body) {
  switch (fn) {
    case BinaryFn::kDiv:
      body([](V a, V b) { return quotient(a, b); });
      return true;
    case BinaryFn::kPow:
      body([](V a, V b) { return power(a, b); });
      return true;
    case BinaryFn::kMod:
      body([](V a, V b) {
        const V rest = remainder(a, b);
        return rest != V{0} && (rest < V{0}) != (b < V{0}) ? rest + b : rest;
      });
      return true;
    case BinaryFn::kFmod:
      body([](V a, V b) { return remainder(a, b); });
      return true;
    case BinaryFn::kBitAnd:
      body([](V a, V b) { return a & b; });
      return true;
    case BinaryFn::kBitOr:
      body([](V a, V b) { return a | b; });
      return true;
    case BinaryFn::kBitXor:
      body([](V a, V b) { return a ^ b; });
      return true;
    case BinaryFn::kShiftLeft:
      body([](V a, V b) {
        return static_cast<uint64_t>(b) > 63 ? V{0} : static_cast<V>(static_cast<uint64_t>(a) << b);
      });
      return true;
    case BinaryFn::kShiftRight:
      body([](V a, V b) { return static_cast<uint64_t>(b) > 63 ? V{0} : static_cast<V>(a >> b); });
      return true;
    default:
      return false;
  }
}

// Calls body with the function as a callable, so that the loop around it is compiled for each.
template <typename V, typename Body>
void with_function(BinaryFn fn, DType dtype, const Body& body) {
  switch (fn) {
    case BinaryFn::kAdd:
      return body([](V a, V b) { return wrap_add(a, b); });
    case BinaryFn::kSub:
      return body([](V a, V b) { return wrap_sub(a, b); });
    case BinaryFn::kMul:
      return body([](V a, V b) { return wrap_mul(a, b); });
    case BinaryFn::kMax:
      return body([](V a, V b) { return greater_of(a, b); });
    case BinaryFn::kMin:
      return body([](V a, V b) { return less_of(a, b); });
    case BinaryFn::kPrelu:
      return body([](V a, V b) { return a < V{0} ? wrap_mul(a, b) : a; });
    case BinaryFn::kLess:
      return body([](V a, V b) { return V(a < b); });
    case BinaryFn::kLessOrEqual:
      return body([](V a, V b) { return V(a <= b); });
    case BinaryFn::kEqual:
      return body([](V a, V b) { return V(a == b); });
    default:
      break;
  }
  bool known;
  if constexpr (std::is_floating_point_v<V>) {
    known = with_float_function<V>(fn, body);
  } else {
    known = with_integer_function<V>(fn, body);
  }
  if (!known) {
    throw Error("ERR_UNSUPPORTED", message("the cpu backend has no such function of ", dtype_name(dtype)));
  }
}

template <typename V, typename Fn>
void compute(int64_t count, const V* a, bool a_repeats, const V* b, bool b_repeats, const Fn& fn, V* y) {
  if (b_repeats) {
    const V right = *b;
    for (int64_t i = 0; i < count; ++i) y[i] = fn(a[a_repeats ? 0 : i], right);
  } else if (a_repeats) {
    const V left = *a;
    for (int64_t i = 0; i < count; ++i) y[i] = fn(left, b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) y[i] = fn(a[i], b[i]);
  }
}

}  // namespace

void binary(const BinaryArgs& args) {
  const DType result = compares(args.fn) ? DType::kBool : args.dtype;
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    with_function<V>(args.fn, args.dtype, [&](auto fn) {
      for_each_row<2>(args.shape, {&args.a_strides, &args.b_strides},
                      [&](int64_t row, int64_t size, const auto& offset, const auto& step) {
                        V left[kRun], right[kRun], written[kRun];
                        for (int64_t at = 0; at < size; at += kRun) {
                          const int64_t count = std::min(kRun, size - at);
                          const auto read = [&](const void* base, int n, V* room) {
                            return numbers(args.dtype, base, offset[n] + at * step[n], step[n],
                                           step[n] == 0 ? 1 : count, room);
                          };
                          const V *a = read(args.a, 0, left), *b = read(args.b, 1, right);
                          const Results<V> y(result, args.y, row * size + at, count, written);
                          compute(count, a, step[0] == 0, b, step[1] == 0, fn, y.values);
                          y.finish();
                        }
                      });
    });
  });
}

}  // namespace spark::cpu
