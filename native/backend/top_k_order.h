// top_k_order.h: the order in which top_k gives elements. One source for the CPU and the CUDA kernels.
#pragma once

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

// Whether a is the larger number; NaN is the largest.
template <typename V>
SPARK_HOST_DEVICE inline bool exceeds(V a, V b) {
  if (b != b) return false;
  return a > b || a != a;
}

// Whether element i, a, comes before element j, b.
template <typename V>
SPARK_HOST_DEVICE inline bool comes_before(const TopKArgs& args, V a, int64_t i, V b, int64_t j) {
  if (exceeds(a, b)) return args.largest;
  if (exceeds(b, a)) return !args.largest;
  return args.last_first ? i > j : i < j;
}

}  // namespace spark
