// store.cuh: stores of activations.
#pragma once

#include "core/dtype.h"
#include "kernels/gemm/mma.cuh"

namespace spark {

// to[at] = value, rounded as pack.cu rounds the operands of products.
__device__ inline void store_as(FloatType type, void* to, int64_t at, float value) {
  if (type == FloatType::kF32) {
    static_cast<float*>(to)[at] = value;
    return;
  }
  const uint32_t pair = type == FloatType::kF16 ? round_pair<F16>(value, value) : round_pair(value, value);
  static_cast<uint16_t*>(to)[at] = static_cast<uint16_t>(pair);
}

}  // namespace spark
