// integer_rows.h: rows of an activation as signed bytes with a scale for each kIntegerCols neighbours (shared
// with CUDA): x = scale · code, scale being the largest magnitude / 127, and NaN where one of the numbers is
// not finite.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/float_formats.h"

namespace spark {

constexpr int64_t kIntegerCols = 32;

SPARK_HOST_DEVICE inline float integer_scale(const float* x) {
  float largest = 0;
  bool finite = true;
  for (int64_t j = 0; j < kIntegerCols; ++j) {
    const float magnitude = fabsf(x[j]);
    finite = finite && magnitude <= 3.4028234e38f;
    largest = magnitude > largest ? magnitude : largest;
  }
  return finite ? largest / 127.0f : bits_float(kNaNBits);
}

// Nearest, ties to even.
SPARK_HOST_DEVICE inline int32_t integer_code(float x, float scale) {
  if (!(scale > 0)) return 0;
  const float code = rintf(x / scale);
  return static_cast<int32_t>(code > 127 ? 127 : code < -127 ? -127 : code);
}

}  // namespace spark
