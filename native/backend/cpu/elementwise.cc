#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/strided.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

constexpr float kSqrtHalf = 0.70710678f;    // √(1/2)
constexpr float kDensity0 = 0.39894228f;    // 1/√(2π)
constexpr float kTanhFactor = 0.79788456f;  // √(2/π)
constexpr float kTanhCubic = 0.044715f;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float gelu_tanh_grad(float x) {
  const float inner = std::tanh(kTanhFactor * (x + kTanhCubic * x * x * x));
  const float slope = kTanhFactor * (1 + 3 * kTanhCubic * x * x);
  return 0.5f * (1 + inner) + 0.5f * x * (1 - inner * inner) * slope;
}

// Calls body with the function as a callable, so that the loop around it is compiled for each.
template <typename Body>
void with_function(UnaryFn fn, const Body& body) {
  switch (fn) {
    case UnaryFn::kAbs:
      return body([](float x) { return std::fabs(x); });
    case UnaryFn::kNeg:
      return body([](float x) { return -x; });
    case UnaryFn::kReciprocal:
      return body([](float x) { return 1 / x; });
    case UnaryFn::kSqrt:
      return body([](float x) { return std::sqrt(x); });
    case UnaryFn::kExp:
      return body([](float x) { return std::exp(x); });
    case UnaryFn::kLog:
      return body([](float x) { return std::log(x); });
    case UnaryFn::kErf:
      return body([](float x) { return std::erf(x); });
    case UnaryFn::kTanh:
      return body([](float x) { return std::tanh(x); });
    case UnaryFn::kSigmoid:
      return body(sigmoid);
    case UnaryFn::kRelu:
      return body([](float x) { return x < 0 ? 0 : x; });  // NaN stays NaN
    case UnaryFn::kGelu:
      return body([](float x) { return 0.5f * x * (1 + std::erf(x * kSqrtHalf)); });
    case UnaryFn::kGeluTanh:
      return body(
          [](float x) { return 0.5f * x * (1 + std::tanh(kTanhFactor * (x + kTanhCubic * x * x * x))); });
    case UnaryFn::kSilu:
      return body([](float x) { return x * sigmoid(x); });
  }
}

template <typename Body>
void with_function(BinaryFn fn, const Body& body) {
  switch (fn) {
    case BinaryFn::kAdd:
      return body([](float a, float b) { return a + b; });
    case BinaryFn::kSub:
      return body([](float a, float b) { return a - b; });
    case BinaryFn::kMul:
      return body([](float a, float b) { return a * b; });
    case BinaryFn::kDiv:
      return body([](float a, float b) { return a / b; });
    case BinaryFn::kPow:
      return body([](float a, float b) { return std::pow(a, b); });
    case BinaryFn::kMax:
      return body([](float a, float b) { return a > b || a != a ? a : b; });
    case BinaryFn::kMin:
      return body([](float a, float b) { return a < b || a != a ? a : b; });
    case BinaryFn::kReluGrad:
      return body([](float a, float b) { return b > 0 ? a : 0; });
    case BinaryFn::kGeluGrad:
      return body([](float a, float b) {
        return a * (0.5f * (1 + std::erf(b * kSqrtHalf)) + b * kDensity0 * std::exp(-0.5f * b * b));
      });
    case BinaryFn::kGeluTanhGrad:
      return body([](float a, float b) { return a * gelu_tanh_grad(b); });
    case BinaryFn::kSiluGrad:
      return body([](float a, float b) { return a * (sigmoid(b) * (1 + b * (1 - sigmoid(b)))); });
  }
}

void expect_f32(const char* op, DType dtype) {
  if (dtype != DType::kF32) {
    throw Error("ERR_UNSUPPORTED",
                message("the cpu backend has no kernel for ", op, " in ", dtype_name(dtype)));
  }
}

}  // namespace

void unary(const UnaryArgs& args) {
  expect_f32("unary", args.dtype);
  const float* x = static_cast<const float*>(args.x);
  float* y = static_cast<float*>(args.y);
  with_function(args.fn, [&](auto fn) {
    parallel_for(args.count, 1 << 13, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = fn(x[i]);
    });
  });
}

void binary(const BinaryArgs& args) {
  expect_f32("binary", args.dtype);
  with_function(args.fn, [&](auto fn) {
    for_each_row<2>(args.shape, {&args.a_strides, &args.b_strides},
                    [&](int64_t row, int64_t count, const auto& offset, const auto& step) {
                      const float* a = static_cast<const float*>(args.a) + offset[0];
                      const float* b = static_cast<const float*>(args.b) + offset[1];
                      float* y = static_cast<float*>(args.y) + row * count;
                      if (step[0] == 1 && step[1] == 1) {
                        for (int64_t i = 0; i < count; ++i) y[i] = fn(a[i], b[i]);
                      } else if (step[0] == 1 && step[1] == 0) {
                        const float right = *b;
                        for (int64_t i = 0; i < count; ++i) y[i] = fn(a[i], right);
                      } else {
                        for (int64_t i = 0; i < count; ++i) y[i] = fn(a[i * step[0]], b[i * step[1]]);
                      }
                    });
  });
}

}  // namespace spark::cpu
