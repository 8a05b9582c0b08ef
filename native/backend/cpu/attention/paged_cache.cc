// paged_cache.cc: elements of keys or values in blocks.
#include "backend/cpu/attention/paged_cache.h"

#include <algorithm>

#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {

void PagedCache::store(int64_t token, int64_t head, const float* from) const {
  const int64_t row = token * heads + head;
  if (dtype == DType::kF32) {
    std::copy_n(from, depth, static_cast<float*>(data) + row * depth);
  } else if (dtype == DType::kI8) {
    int8_t* to = static_cast<int8_t*>(data) + row * depth;
    const float scale = scales[row] = int8_scale(kernels().precision.amax(DType::kF32, from, depth));
    for (int64_t i = 0; i < depth; ++i) to[i] = int8_code(from[i], scale);
  } else {
    std::byte* to = static_cast<std::byte*>(data) + row * depth * dtype_bits(dtype) / 8;
    kernels().precision.cast(DType::kF32, dtype, true, false, from, to, depth);
  }
}

void PagedCache::load(int64_t token, int64_t head, float* to) const {
  const int64_t row = token * heads + head;
  if (dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(data) + row * depth, depth, to);
  } else if (dtype == DType::kI8) {
    const int8_t* from = static_cast<const int8_t*>(data) + row * depth;
    const float scale = scales[row];
    for (int64_t i = 0; i < depth; ++i) to[i] = static_cast<float>(from[i]) * scale;
  } else {
    const std::byte* from = static_cast<const std::byte*>(data) + row * depth * dtype_bits(dtype) / 8;
    kernels().precision.cast(dtype, DType::kF32, true, false, from, to, depth);
  }
}

}  // namespace spark::cpu
