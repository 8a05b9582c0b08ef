// reduce.cc: reductions over axes of a strided tensor.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "backend/cpu/strided.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

// What numbers of type V are summed in.
template <typename V>
using Sum = std::conditional_t<std::is_floating_point_v<V>, double, V>;

// Folds the elements of x at the indices of `reduced`, in row-major order: runs of them along the last axis.
template <typename V, typename FoldRun>
Sum<V> fold_runs(const ReduceArgs& args, int64_t offset, Sum<V> start, const FoldRun& fold_run) {
  const Axes& axes = args.reduced;
  const int64_t size = axes.count == 0 ? 1 : axes.size[axes.count - 1];
  const int64_t stride = axes.count == 0 ? 0 : args.reduced_strides.step[axes.count - 1];
  V buffer[kRun];
  const auto fold_row = [&](Sum<V> value, int64_t from) {
    for (int64_t at = 0; at < size; at += kRun) {
      const int64_t count = std::min(kRun, size - at);
      value = fold_run(value, numbers(args.dtype, args.x, from + at * stride, stride, count, buffer), count);
    }
    return value;
  };
  if (axes.count <= 1) return fold_row(start, offset);
  Axes outer = axes;
  outer.count = axes.count - 1;
  Cursor<1> cursor(outer, {&args.reduced_strides}, 0);
  Sum<V> value = start;
  const int64_t rows = size == 0 ? 0 : numel(axes) / size;
  for (int64_t row = 0; row < rows; ++row, cursor.next()) value = fold_row(value, offset + cursor.offset[0]);
  return value;
}

template <typename V>
Sum<V> sum(const ReduceArgs& args, int64_t offset) {
  return fold_runs<V>(args, offset, 0, [](Sum<V> sum, const V* x, int64_t count) {
    if constexpr (std::is_same_v<V, float>) return sum + kernels().rows.double_sum(x, count);
    for (int64_t i = 0; i < count; ++i) sum = wrap_add(sum, static_cast<Sum<V>>(x[i]));
    return sum;
  });
}

template <typename V>
Sum<V> mean(Sum<V> sum, int64_t count) {
  if constexpr (std::is_floating_point_v<V>) return sum / static_cast<Sum<V>>(count);
  return count == 0 ? 0 : sum / static_cast<Sum<V>>(count);
}

template <typename V>
V reduce_one(const ReduceArgs& args, int64_t offset) {
  using S = Sum<V>;
  const auto over = [&](S start, auto step) {
    return fold_runs<V>(args, offset, start, [&](S value, const V* x, int64_t count) {
      for (int64_t i = 0; i < count; ++i) value = step(value, static_cast<S>(x[i]));
      return value;
    });
  };
  switch (args.fn) {
    case ReduceFn::kSum:
      return static_cast<V>(sum<V>(args, offset));
    case ReduceFn::kMean:
      return static_cast<V>(mean<V>(sum<V>(args, offset), numel(args.reduced)));
    case ReduceFn::kMax:
      return static_cast<V>(
          over(static_cast<S>(least_number<V>(args.dtype)), [](S most, S x) { return greater_of(x, most); }));
    case ReduceFn::kMin:
      return static_cast<V>(over(static_cast<S>(largest_number<V>(args.dtype)),
                                 [](S least, S x) { return less_of(x, least); }));
    case ReduceFn::kProd:
      return static_cast<V>(over(1, [](S product, S x) { return wrap_mul(product, x); }));
    case ReduceFn::kSumSquare:
      return static_cast<V>(over(0, [](S sum, S x) { return wrap_add(sum, wrap_mul(x, x)); }));
    case ReduceFn::kSumAbs:
      return static_cast<V>(
          over(0, [](S sum, S x) { return wrap_add(sum, x < S{0} ? wrap_sub(S{0}, x) : x); }));
  }
  return 0;
}

constexpr int64_t kColumns = 64;

// Whether columns lie side by side, whose elements are not neighbours, and a vector takes some of them at
// once.
bool takes_columns(const ReduceArgs& args) {
  const Axes &kept = args.shape, &gone = args.reduced;
  const bool has_loop = args.fn == ReduceFn::kSum || args.fn == ReduceFn::kMean || args.fn == ReduceFn::kMax;
  return has_loop && args.dtype == DType::kF32 && kept.count > 0 && args.strides.step[kept.count - 1] == 1 &&
         kept.size[kept.count - 1] > 1 && gone.count > 0 && args.reduced_strides.step[gone.count - 1] != 1;
}

// Calls body(x, stride, count) for the runs of a column from `offset` on, in the order of fold_runs.
template <typename Body>
void for_each_run(const ReduceArgs& args, int64_t offset, const Body& body) {
  const Axes& axes = args.reduced;
  const int64_t size = axes.size[axes.count - 1], stride = args.reduced_strides.step[axes.count - 1];
  const float* x = static_cast<const float*>(args.x) + offset;
  Axes outer = axes;
  outer.count = axes.count - 1;
  Cursor<1> cursor(outer, {&args.reduced_strides}, 0);
  for (int64_t left = numel(axes); left > 0; left -= size, cursor.next()) {
    for (int64_t at = 0; at < size; at += kRun)
      body(x + cursor.offset[0] + at * stride, stride, std::min(kRun, size - at));
  }
}

// y[c] = reduce_one at offset + c, for up to kColumns of them.
void reduce_columns(const ReduceArgs& args, int64_t offset, int64_t columns, float* y) {
  const RowKernels& rows = kernels().rows;
  if (args.fn == ReduceFn::kMax) {
    std::fill_n(y, columns, -std::numeric_limits<float>::infinity());
    for_each_run(args, offset, [&](const float* x, int64_t stride, int64_t count) {
      rows.max_columns(x, stride, count, columns, y);
    });
    return;
  }
  double totals[kColumns] = {}, sums[kColumns];
  for_each_run(args, offset, [&](const float* x, int64_t stride, int64_t count) {
    rows.double_sums(x, stride, count, columns, sums);
    for (int64_t c = 0; c < columns; ++c) totals[c] += sums[c];
  });
  const bool divides = args.fn == ReduceFn::kMean;
  const int64_t count = numel(args.reduced);
  for (int64_t c = 0; c < columns; ++c) {
    y[c] = static_cast<float>(divides ? mean<float>(totals[c], count) : totals[c]);
  }
}

void reduce_rows_of_columns(const ReduceArgs& args) {
  Axes outer = args.shape;
  outer.count = args.shape.count - 1;
  const int64_t columns = args.shape.size[outer.count], blocks = (columns + kColumns - 1) / kColumns;
  const int64_t grain = grain_for(numel(args.reduced) * std::min(columns, kColumns), 1 << 13);
  float* y = static_cast<float*>(args.y);
  parallel_for(numel(outer) * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, column = task % blocks * kColumns;
      const Cursor<1> cursor(outer, {&args.strides}, row);
      reduce_columns(args, cursor.offset[0] + column, std::min(kColumns, columns - column),
                     y + row * columns + column);
    }
  });
}

}  // namespace

void reduce(const ReduceArgs& args) {
  if (takes_columns(args)) return reduce_rows_of_columns(args);
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    const int64_t grain = grain_for(numel(args.reduced), 1 << 13);
    parallel_for(numel(args.shape), grain, [&](int64_t begin, int64_t end) {
      if (begin == end) return;
      Cursor<1> cursor(args.shape, {&args.strides}, begin);
      V written[kRun];
      for (int64_t at = begin; at < end; at += kRun) {
        const int64_t count = std::min(kRun, end - at);
        const Results<V> y(args.dtype, args.y, at, count, written);
        for (int64_t i = 0; i < count; ++i, cursor.next())
          y.values[i] = reduce_one<V>(args, cursor.offset[0]);
        y.store();
      }
    });
  });
}

}  // namespace spark::cpu
