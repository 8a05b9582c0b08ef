// nvfp4.cuh: shared code of the NVFP4 quantization kernels: a thread handles one block of 16.
#pragma once

#include "core/quantizers.h"
#include "kernels/quantize/elements.cuh"

namespace spark {

static_assert(kNvfp4Block == kRun, "a thread handles one block");
constexpr int kPackedBytes = kNvfp4Block / 2;

// The codes of a block, in one word when the address allows.
struct alignas(8) Packed {
  uint8_t pairs[kPackedBytes];

  __device__ static bool aligned(const void* address) {
    return reinterpret_cast<uintptr_t>(address) % 8 == 0;
  }

  __device__ void load(const uint8_t* src) {
    if (aligned(src)) {
      *this = *reinterpret_cast<const Packed*>(src);
      return;
    }
    for (int i = 0; i < kPackedBytes; ++i) pairs[i] = src[i];
  }

  __device__ void store(uint8_t* dst) const {
    if (aligned(dst)) {
      *reinterpret_cast<Packed*>(dst) = *this;
      return;
    }
    for (int i = 0; i < kPackedBytes; ++i) dst[i] = pairs[i];
  }
};

}  // namespace spark
