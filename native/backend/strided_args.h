// strided_args.h: operations on strided operands of any element type: elementwise, reductions, copies. Part
// of the contract in backend.h.
//
// Elements are computed with as f32 (all floats up to 32 bits), f64, signed or unsigned 64-bit integers (bool
// among the latter) and rounded once when they are stored; integers wrap around.
#pragma once

#include <cstdint>

#include "backend/functions.h"
#include "core/dtype.h"
#include "core/float_formats.h"

namespace spark {

// Axes that a loop runs over, outermost first, and how far an operand moves along each, in elements.
constexpr int64_t kMaxAxes = 8;
struct Axes {
  int64_t count;
  int64_t size[kMaxAxes];
};
SPARK_HOST_DEVICE inline int64_t numel(const Axes& axes) {
  int64_t product = 1;
  for (int64_t i = 0; i < axes.count; ++i) product *= axes.size[i];
  return product;
}
struct Strides {
  int64_t step[kMaxAxes];
};

// y[i] = fn(x[i]) for i < count. y is bool for is_nan and is_inf, else of `dtype`.
struct UnaryArgs {
  UnaryFn fn;
  DType dtype;
  int64_t count;
  double alpha, beta;
  const void* x;
  void* y;  // may be x unless it is bool
};

// y[i] = fn(a[i · a_strides], b[i · b_strides]) for each index i of shape, y being contiguous; it is bool for
// comparisons, else of `dtype` as a and b. Strides are not negative; 0 repeats.
struct BinaryArgs {
  BinaryFn fn;
  DType dtype;
  Axes shape;
  Strides a_strides, b_strides;
  const void* a;
  const void* b;
  void* y;  // may be an operand whose strides are those of y, unless it is bool
};

// y[i] = condition[i · condition_strides] ? a[i · a_strides] : b[i · b_strides], y being contiguous. Strides
// are not negative.
struct SelectArgs {
  DType dtype;
  Axes shape;
  Strides condition_strides, a_strides, b_strides;
  const uint8_t* condition;
  const void* a;
  const void* b;
  void* y;
};

enum class ReduceFn : uint8_t { kSum, kMean, kMax, kMin, kProd, kSumSquare, kSumAbs };

// y[i] = fn over the indices j of `reduced` of x[i · strides + j · reduced_strides], y being contiguous over
// the indices i of shape. Floats are summed and multiplied in f64, integers in 64 bits; a mean of integers is
// rounded towards 0. Over no elements: 0, NaN, the least number, the largest, 1, 0 and 0; the mean of no
// integers is 0. Strides are not negative.
struct ReduceArgs {
  ReduceFn fn;
  DType dtype;
  Axes shape, reduced;
  Strides strides, reduced_strides;
  const void* x;
  void* y;
};

enum class CumulateFn : uint8_t { kSum, kProd };

// y[o, q, i] = fn over p <= q of x[o, p, i], for x[outer, size, inner]; p < q if exclusive, p >= q or p > q
// if reverse. Sums and products as those of reduce.
struct CumulateArgs {
  CumulateFn fn;
  DType dtype;
  int64_t outer, size, inner;
  bool exclusive, reverse;
  const void* x;
  void* y;
};

// The k largest (smallest) elements of x[outer, size, inner] along the middle axis in falling (rising) order,
// k <= size, and their indices there. Of equal elements the one with the smaller index comes first, or, if
// last_first, that with the larger one. NaN counts as larger than everything.
struct TopKArgs {
  DType dtype;
  int64_t outer, size, inner, k;
  bool largest, last_first;
  const void* x;
  void* values;      // [outer, k, inner]; null: not wanted
  int64_t* indices;  // [outer, k, inner]
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

// Where in a tensor the element of an index i of shape is: at i · strides + Σ_d index_d · steps[d], where
// index_d = indices[i · index_strides + d], counted from limits[d] where it is negative. Strides are not
// negative. An index out of range is ERR_ARGUMENT; on CUDA, where a kernel cannot throw, gather
// gives 0 for it and scatter passes it over.
struct Indexing {
  Axes shape;
  Strides strides, index_strides;
  int64_t components;  // d; at most kMaxAxes
  int64_t steps[kMaxAxes], limits[kMaxAxes];
  const int64_t* indices;
};

// y[i] = x[offset(i)], y being contiguous over the indices i of indexing.shape. Any dtype but nvfp4.
struct GatherArgs {
  DType dtype;
  Indexing indexing;
  const void* x;
  void* y;
};

enum class ScatterFn : uint8_t { kAssign, kAdd, kMul, kMax, kMin };

// y[offset(i)] = fn(y[offset(i)], updates[i]) in row-major order of the indices i of indexing.shape, over
// which updates is contiguous; kAssign takes the update.
struct ScatterArgs {
  ScatterFn fn;
  DType dtype;
  Indexing indexing;
  const void* updates;
  void* y;
};

}  // namespace spark
