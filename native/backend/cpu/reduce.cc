#include <cmath>
#include <limits>

#include "backend/cpu/cpu.h"
#include "backend/cpu/strided.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

// Folds the elements of x at the indices of `axes`, in row-major order.
template <typename Fold>
double fold(const Axes& axes, const Strides& strides, const float* x, double start, const Fold& step) {
  const int64_t count = axes.count == 0 ? 1 : axes.size[axes.count - 1];
  const int64_t stride = axes.count == 0 ? 0 : strides.step[axes.count - 1];
  const int64_t rows = count == 0 ? 0 : volume(axes) / count;
  Axes outer = axes;
  outer.count = axes.count == 0 ? 0 : axes.count - 1;
  Cursor<1> cursor(outer, {&strides}, 0);
  double value = start;
  for (int64_t row = 0; row < rows; ++row, cursor.next()) {
    const float* from = x + cursor.offset[0];
    for (int64_t i = 0; i < count; ++i) value = step(value, from[i * stride]);
  }
  return value;
}

double reduce_one(const ReduceArgs& args, const float* x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto over = [&](double start, auto step) {
    return fold(args.reduced, args.reduced_strides, x, start, step);
  };
  switch (args.fn) {
    case ReduceFn::kSum:
      return over(0, [](double sum, double value) { return sum + value; });
    case ReduceFn::kMean:
      return over(0, [](double sum, double value) { return sum + value; }) / volume(args.reduced);
    case ReduceFn::kMax:
      return over(-kInfinity,
                  [](double most, double value) { return most >= value || most != most ? most : value; });
    case ReduceFn::kMin:
      return over(kInfinity, [](double least, double value) {
        return least <= value || least != least ? least : value;
      });
    case ReduceFn::kProd:
      return over(1, [](double product, double value) { return product * value; });
    case ReduceFn::kSumSquare:
      return over(0, [](double sum, double value) { return sum + value * value; });
  }
  return 0;
}

}  // namespace

void reduce(const ReduceArgs& args) {
  if (args.dtype != DType::kF32) {
    throw Error("ERR_UNSUPPORTED",
                message("the cpu backend has no kernel for reduce in ", dtype_name(args.dtype)));
  }
  const int64_t outputs = volume(args.shape);
  parallel_for(outputs, 1 + (1 << 13) / (volume(args.reduced) + 1), [&](int64_t begin, int64_t end) {
    if (begin == end) return;
    Cursor<1> cursor(args.shape, {&args.strides}, begin);
    for (int64_t i = begin; i < end; ++i, cursor.next()) {
      static_cast<float*>(args.y)[i] =
          static_cast<float>(reduce_one(args, static_cast<const float*>(args.x) + cursor.offset[0]));
    }
  });
}

}  // namespace spark::cpu
