// elements.cuh: a thread's run of 16 elements in any format, and maxima over a block of threads.
#pragma once

#include "core/float_formats.h"
#include "kernels/quantize/blocks.h"
#include "kernels/reduce.cuh"

namespace spark {

// 16 codes as they lie in memory.
template <typename Format>
struct alignas(16) Run {
  using Code = typename Format::Code;
  Code codes[kRun];

  __device__ static bool aligned(const void* address) {
    return reinterpret_cast<uintptr_t>(address) % 16 == 0;
  }

  // Elements from `first` on; beyond `count` zeros.
  __device__ void load(const Code* src, int64_t first, int64_t count) {
    if (first + kRun <= count && aligned(src + first)) {
      *this = *reinterpret_cast<const Run*>(src + first);
      return;
    }
    for (int i = 0; i < kRun; ++i) codes[i] = first + i < count ? src[first + i] : Code(0);
  }

  __device__ void store(Code* dst, int64_t first, int64_t count) const {
    if (first + kRun <= count && aligned(dst + first)) {
      *reinterpret_cast<Run*>(dst + first) = *this;
      return;
    }
    for (int i = 0; i < kRun; ++i) {
      if (first + i < count) dst[first + i] = codes[i];
    }
  }

  // Bits of the largest magnitude as f32: ordered like the numbers, with infinity and NaN on top.
  __device__ uint32_t max_bits() const {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kRun; ++i) largest = max(largest, float_bits(Format::decode(codes[i])) & 0x7FFFFFFFu);
    return largest;
  }
};

// Largest `value` of a block of kThreads, in every thread. All threads must call it.
template <int kThreads>
__device__ uint32_t block_max(uint32_t value) {
  __shared__ uint32_t of_warp[kThreads / kWarp];
  value = __reduce_max_sync(0xFFFFFFFFu, value);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (int i = 0; i < kThreads / kWarp; ++i) value = max(value, of_warp[i]);
  __syncthreads();  // of_warp may be written again
  return value;
}

}  // namespace spark
