// reduction.cu: reduce and cumulate on views. Sums of floats are f64, as on the CPU, in another order.
// Few elements for each result: a thread folds them (reduce_each_*). Many: blocks fold a part each
// (reduce_parts_*) and a thread for each result folds the parts in order (reduce_finish_*), so that a result
// is the same in every run.
// Reference: native/backend/cpu/ops/reduce.cc, cumulate.cc
#include "kernels/ops/strided.cuh"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

// What numbers of type V are summed in.
template <typename V>
using Sum = std::conditional_t<std::is_floating_point_v<V>, double, V>;

template <typename V>
__device__ Sum<V> neutral(ReduceFn fn, DType dtype) {
  switch (fn) {
    case ReduceFn::kMax:
      return static_cast<Sum<V>>(least_number<V>(dtype));
    case ReduceFn::kMin:
      return static_cast<Sum<V>>(largest_number<V>(dtype));
    case ReduceFn::kProd:
      return 1;
    default:
      return 0;
  }
}

// What an element brings to the fold.
template <typename S>
__device__ S term(ReduceFn fn, S x) {
  if (fn == ReduceFn::kSumSquare) return wrap_mul(x, x);
  if (fn == ReduceFn::kSumAbs) return negative(x) ? wrap_sub(S{0}, x) : x;
  return x;
}

template <typename S>
__device__ S joined(ReduceFn fn, S a, S b) {
  switch (fn) {
    case ReduceFn::kMax:
      return greater_of(b, a);
    case ReduceFn::kMin:
      return less_of(b, a);
    case ReduceFn::kProd:
      return wrap_mul(a, b);
    default:
      return wrap_add(a, b);
  }
}

// Folds elements first, first + step, … below `end` of what result `at` is made of.
template <typename V>
__device__ Sum<V> fold(const ReduceArgs& args, int64_t at, int64_t first, int64_t step, int64_t end) {
  const int64_t start = offset_at(args.shape, args.strides, at);
  Sum<V> value = neutral<V>(args.fn, args.dtype);
  for (int64_t j = first; j < end; j += step) {
    const V x = load_element<V>(args.dtype, args.x, start + offset_at(args.reduced, args.reduced_strides, j));
    value = joined(args.fn, value, term(args.fn, static_cast<Sum<V>>(x)));
  }
  return value;
}

template <typename V>
__device__ void finish(const ReduceArgs& args, int64_t at, Sum<V> value) {
  if (args.fn == ReduceFn::kMean) {
    const int64_t count = numel(args.reduced);
    if constexpr (std::is_floating_point_v<V>) {
      value /= static_cast<Sum<V>>(count);
    } else {
      value = count == 0 ? 0 : value / static_cast<Sum<V>>(count);
    }
  }
  store_element(args.dtype, static_cast<V>(value), args.y, at);
}

template <typename V>
__device__ void reduce_each(const ReduceArgs& args) {
  const int64_t at = thread_index();
  if (at >= numel(args.shape)) return;
  finish<V>(args, at, fold<V>(args, at, 0, 1, numel(args.reduced)));
}

// Block at · parts + part folds elements [part · size, (part + 1) · size) of result `at`.
template <typename V>
__device__ void reduce_parts(const ReduceArgs& args, int64_t parts, int64_t size, void* folded) {
  const int64_t at = blockIdx.x / parts, begin = blockIdx.x % parts * size;
  const int64_t end = min(begin + size, numel(args.reduced));
  const Sum<V> value =
      block_reduce(fold<V>(args, at, begin + threadIdx.x, blockDim.x, end), neutral<V>(args.fn, args.dtype),
                   [&](Sum<V> a, Sum<V> b) { return joined(args.fn, a, b); });
  if (threadIdx.x == 0) static_cast<Sum<V>*>(folded)[blockIdx.x] = value;
}

template <typename V>
__device__ void reduce_finish(const ReduceArgs& args, int64_t parts, const void* folded) {
  const int64_t at = thread_index();
  if (at >= numel(args.shape)) return;
  Sum<V> value = neutral<V>(args.fn, args.dtype);
  for (int64_t part = 0; part < parts; ++part) {
    value = joined(args.fn, value, static_cast<const Sum<V>*>(folded)[at * parts + part]);
  }
  finish<V>(args, at, value);
}

// A thread per row along the axis, for positions [begin, end) of it. carry[outer · inner]: what the launch
// before has come to, for the next; not touched where one launch does all.
template <typename V>
__device__ void cumulate(const CumulateArgs& args, int64_t begin, int64_t end, void* carry) {
  const int64_t row = thread_index();
  if (row >= args.outer * args.inner) return;
  const int64_t start = row / args.inner * args.size * args.inner + row % args.inner;
  Sum<V>* carried = static_cast<Sum<V>*>(carry) + row;
  Sum<V> value = begin > 0 ? *carried : args.fn == CumulateFn::kSum ? 0 : 1;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t at = start + (args.reverse ? args.size - 1 - n : n) * args.inner;
    const Sum<V> x = static_cast<Sum<V>>(load_element<V>(args.dtype, args.x, at)), before = value;
    value = args.fn == CumulateFn::kSum ? wrap_add(value, x) : wrap_mul(value, x);
    store_element(args.dtype, static_cast<V>(args.exclusive ? before : value), args.y, at);
  }
  if (end < args.size) *carried = value;
}

}  // namespace
}  // namespace spark

#define SPARK_NUMBER(name, V)                                                                            \
  extern "C" __global__ void reduce_each_##name(spark::ReduceArgs args) { spark::reduce_each<V>(args); } \
  extern "C" __global__ void reduce_parts_##name(spark::ReduceArgs args, int64_t parts, int64_t size,    \
                                                 void* folded) {                                         \
    spark::reduce_parts<V>(args, parts, size, folded);                                                   \
  }                                                                                                      \
  extern "C" __global__ void reduce_finish_##name(spark::ReduceArgs args, int64_t parts,                 \
                                                  const void* folded) {                                  \
    spark::reduce_finish<V>(args, parts, folded);                                                        \
  }                                                                                                      \
  extern "C" __global__ void cumulate_##name(spark::CumulateArgs args, int64_t begin, int64_t end,       \
                                             void* carry) {                                              \
    spark::cumulate<V>(args, begin, end, carry);                                                         \
  }
SPARK_FOR_EACH_NUMBER(SPARK_NUMBER)
