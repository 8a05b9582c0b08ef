// elementwise.cu: unary, binary and select on views, and casts between any element types. A thread has
// one element of the result, or several of many (threads_sharing of strided.h). Which function it is, is the
// same for all threads, so that the switch costs little beside memory.
// Reference: native/backend/cpu/ops/unary.cc, binary.cc, select.cc, cast.cc; the functions are shared
// (backend/unary_functions.h, binary_functions.h)
#include "backend/binary_functions.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/strided.cuh"

namespace spark {
namespace {

// Elements of a thread whose loads are under way together; more would cost warps.
template <typename V>
constexpr int kAhead = 16 / sizeof(V);
// Blocks of unary on a multiprocessor, at least: six fill a GB10, but f64 would spill.
template <typename V>
constexpr int kBlocks = 6;
template <>
constexpr int kBlocks<double> = 5;

template <typename V>
__device__ void unary(const UnaryArgs& args) {
  const DType to = returns_bool(args.fn) ? DType::kBool : args.dtype;
  for_each_position<kAhead<V>>(args.count, [&](const int64_t(&positions)[kAhead<V>]) {
    auto x = load_ahead<V>(args.dtype, args.x, positions);
    return [&args, to, x](int64_t i) mutable {
      const V y = unary_value(args.fn, x.next(), static_cast<V>(args.alpha), static_cast<V>(args.beta));
      store_element(to, y, args.y, i);
    };
  });
}

template <typename V>
__device__ void binary(const BinaryArgs& args) {
  const int64_t i = thread_index();
  if (i >= numel(args.shape)) return;
  int64_t a = 0, b = 0;
  at_position(args.shape, i, [&](int64_t axis, int64_t index) {
    a += index * args.a_strides.step[axis];
    b += index * args.b_strides.step[axis];
  });
  auto operands = load_ahead<V>(args.dtype, {args.a, args.b}, {a, b});
  const V first = operands.next(), second = operands.next();
  const V y = binary_value(args.fn, first, second);
  store_element(returns_bool(args.fn) ? DType::kBool : args.dtype, y, args.y, i);
}

template <typename T>
__device__ void select(const SelectArgs& args) {
  const int64_t i = thread_index();
  if (i >= numel(args.shape)) return;
  int64_t condition = 0, a = 0, b = 0;
  at_position(args.shape, i, [&](int64_t axis, int64_t index) {
    condition += index * args.condition_strides.step[axis];
    a += index * args.a_strides.step[axis];
    b += index * args.b_strides.step[axis];
  });
  static_cast<T*>(args.y)[i] =
      args.condition[condition] ? static_cast<const T*>(args.a)[a] : static_cast<const T*>(args.b)[b];
}

template <typename V>
__device__ void convert(const CastArgs& args) {
  for_each_position<kAhead<V>>(args.count, [&](const int64_t(&positions)[kAhead<V>]) {
    auto x = load_ahead<V>(args.src_dtype, args.src, positions);
    return [&args, x](int64_t i) mutable {
      store_element(args.dst_dtype, x.next(), args.dst, i, {args.saturate, args.rounding});
    };
  });
}

}  // namespace
}  // namespace spark

#define SPARK_NUMBER(name, V)                                                                  \
  extern "C" __global__ void __launch_bounds__(spark::view_block::kThreads, spark::kBlocks<V>) \
      unary_##name(spark::UnaryArgs args) {                                                    \
    spark::unary<V>(args);                                                                     \
  }                                                                                            \
  extern "C" __global__ void binary_##name(spark::BinaryArgs args) { spark::binary<V>(args); } \
  extern "C" __global__ void convert_##name(spark::CastArgs args) { spark::convert<V>(args); }
SPARK_FOR_EACH_NUMBER(SPARK_NUMBER)

#define SPARK_SIZE(bits, T) \
  extern "C" __global__ void select_##bits(spark::SelectArgs args) { spark::select<T>(args); }
SPARK_FOR_EACH_SIZE(SPARK_SIZE)
