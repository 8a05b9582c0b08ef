// integer_result.h: requantization and store of int32 accumulators.
#pragma once

#include "backend/cpu/simd/cpu_kernels.h"
#include "backend/integer_args.h"

namespace spark::cpu {

inline ByteRounding rounding_of(const IntegerResult& result) {
  return {result.zero ? result.zero[0] : 0, result.dtype == DType::kI8};
}

// y[at + i] from sums[i] + shift, for i < count, with the scale of one feature.
inline void store_sums(const IntegerResult& result, int64_t feature, const int32_t* sums, int64_t count,
                       uint32_t shift, int64_t at) {
  if (!result.scale) {
    int32_t* y = static_cast<int32_t*>(result.y) + at;
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + shift);
    return;
  }
  kernels().bytes.requantize(sums, count, shift, result.scale[feature], rounding_of(result),
                             static_cast<uint8_t*>(result.y) + at);
}

}  // namespace spark::cpu
