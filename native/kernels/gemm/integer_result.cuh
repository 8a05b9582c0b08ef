// integer_result.cuh: what becomes of sums of integers, as IntegerResult of backend.h says.
#pragma once

#include "backend/backend.h"
#include "kernels/quantize/saturate.cuh"

namespace spark {
namespace {

// What y is of a sum of feature o without its bias: a sum, or a byte.
__device__ uint32_t finished(const IntegerResult& result, const int32_t* bias, int64_t o, uint32_t sum) {
  if (bias) sum += static_cast<uint32_t>(bias[o]);
  if (!result.scale) return sum;
  const float scaled = static_cast<float>(static_cast<int32_t>(sum)) * result.scale[o];
  return saturated(scaled, result.zero ? result.zero[0] : 0, result.dtype == DType::kI8);
}

// y[at] is what finished() gave.
__device__ void store_finished(const IntegerResult& result, int64_t at, uint32_t value) {
  if (result.scale) {
    static_cast<uint8_t*>(result.y)[at] = static_cast<uint8_t>(value);
  } else {
    static_cast<uint32_t*>(result.y)[at] = value;
  }
}

// y[at], of a sum of feature o without its bias.
__device__ void store_integer(const IntegerResult& result, const int32_t* bias, int64_t o, int64_t at,
                              uint32_t sum) {
  store_finished(result, at, finished(result, bias, o, sum));
}

}  // namespace
}  // namespace spark
