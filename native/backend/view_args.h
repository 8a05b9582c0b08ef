// view_args.h: the operations on views of tensors: elementwise, reductions, copies. Part of the contract in
// backend.h.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace spark {

// Axes that a loop runs over, outermost first, and how far an operand moves along each, in elements.
constexpr int64_t kMaxAxes = 8;
struct Axes {
  int64_t count;
  int64_t size[kMaxAxes];
};
struct Strides {
  int64_t step[kMaxAxes];
};

// Functions of one number. gelu: x/2 · (1 + erf(x/√2)); gelu_tanh: x/2 · (1 + tanh(√(2/π)·(x +
// 0.044715·x³))); silu: x / (1 + e^-x).
enum class UnaryFn : uint8_t {
  kAbs,
  kNeg,
  kReciprocal,
  kSqrt,
  kExp,
  kLog,
  kErf,
  kTanh,
  kSigmoid,
  kRelu,
  kGelu,
  kGeluTanh,
  kSilu,
};

// y[i] = fn(x[i]) for i < count. dtypes: f32.
struct UnaryArgs {
  UnaryFn fn;
  DType dtype;
  int64_t count;
  const void* x;
  void* y;  // may be x
};

// Functions of two numbers. <fn>_grad is a · fn'(b); relu_grad is 0 where b is not above 0.
enum class BinaryFn : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMax,
  kMin,
  kReluGrad,
  kGeluGrad,
  kGeluTanhGrad,
  kSiluGrad,
};

// y[i] = fn(a[i · a_strides], b[i · b_strides]) for each index i of shape, y being contiguous. Strides are
// not negative; 0 repeats. dtypes: f32.
struct BinaryArgs {
  BinaryFn fn;
  DType dtype;
  Axes shape;
  Strides a_strides, b_strides;
  const void* a;
  const void* b;
  void* y;  // may be an operand whose strides are those of y
};

enum class ReduceFn : uint8_t { kSum, kMean, kMax, kMin, kProd, kSumSquare };

// y[i] = fn over the indices j of `reduced` of x[i · strides + j · reduced_strides], y being contiguous over
// the indices i of shape. Sums are taken in f64. Over no elements: 0, NaN, −∞, +∞, 1 and 0. Strides are not
// negative. dtypes: f32.
struct ReduceArgs {
  ReduceFn fn;
  DType dtype;
  Axes shape, reduced;
  Strides strides, reduced_strides;
  const void* x;
  void* y;
};

// dst[dst_offset + i · dst_strides] = src[src_offset + i · src_strides] for each index i of shape:
// transposes, slices, repeats, parts of a concatenation. Strides may be negative; no element of dst is
// written twice. Any dtype but nvfp4.
struct CopyStridedArgs {
  DType dtype;
  Axes shape;
  int64_t src_offset, dst_offset;
  Strides src_strides, dst_strides;
  const void* src;
  void* dst;
};

enum class PoolFn : uint8_t { kMax, kAverage };

// Windows that move over planes along one to three axes, written as three: those in front are of size 1. Tap
// k of the window at q lies on position p = q · stride + k · dilation − pad; only positions inside of the
// image count.
struct Windows {
  int64_t planes;
  int64_t image[3], kernel[3], out[3];  // each at least 1 but for image and out
  int64_t stride[3], dilation[3];       // at least 1
  int64_t pad[3], pad_end[3];           // at the beginning and at the end, not negative
};

// y[n, q] = the largest x[n, p], −∞ where there is none, or the mean: the sum, in f64, divided by the number
// of taps inside of the image or, with count_pad, of the image and its pads. dtypes: f32.
struct PoolArgs {
  PoolFn fn;
  DType dtype;
  Windows windows;
  bool count_pad;
  const void* x;  // [planes, image]
  void* y;        // [planes, out]
};

// dx[n, p] = Σ of dy[n, q] over the windows whose largest element is the first at p, or of dy[n, q] / divisor
// over those that p lies in. dtypes: f32.
struct PoolBackwardArgs {
  PoolFn fn;
  DType dtype;
  Windows windows;
  bool count_pad;
  const void* x;   // [planes, image]; max only
  const void* dy;  // [planes, out]
  void* dx;        // [planes, image]
};

}  // namespace spark
