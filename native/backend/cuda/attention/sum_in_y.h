// sum_in_y.h: results in 16 bits of kernels that keep their sums in y.
#pragma once

#include <utility>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "core/dtype.h"

namespace spark::cuda {

// run(args) with `count` elements of f32 as y, which are rounded to y_dtype behind it.
template <typename Args, typename Run>
void sum_in_y(Args args, int64_t count, const Run& run) {
  if (args.y_dtype == FloatType::kF32) return run(args);
  const Scratch sums(count * sizeof(float));
  void* y = std::exchange(args.y, sums.as<float>());
  run(args);
  cast({DType::kF32, dtype_of(args.y_dtype), count, false, sums.as<const float>(), y});
}

}  // namespace spark::cuda
