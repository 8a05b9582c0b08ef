// lines.cuh: the elements of struct Lines of product_args.h.
#pragma once

#include "kernels/gemm/product_args.h"

namespace spark {

struct FloatLines {
  Lines lines;
  __device__ bool k_first() const { return lines.k_stride == 1; }
  __device__ float element(int64_t line, int64_t k) const {
    const int64_t at = line * lines.line_stride + k * lines.k_stride;
    float value = lines.data[at];
    if (lines.mask) value *= lines.mask[at];
    if (lines.k_scale) value *= lines.k_scale[k] + lines.k_shift;
    return value * lines.factor;
  }
};

}  // namespace spark
