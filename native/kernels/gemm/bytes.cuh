// bytes.cuh: a few bytes of memory in registers.
#pragma once

#include <cstdint>
#include <cstring>

namespace spark {

// kBytes bytes of memory, read at once where the address allows; those from `inside` on are zeros.
template <int kBytes>
struct alignas(kBytes < 16 ? kBytes : 16) Bytes {
  uint8_t at[kBytes];

  __device__ void load(const void* address, int64_t inside) {
    if (inside >= kBytes && reinterpret_cast<uintptr_t>(address) % alignof(Bytes) == 0) {
      *this = *static_cast<const Bytes*>(address);
      return;
    }
    for (int i = 0; i < kBytes; ++i) at[i] = i < inside ? static_cast<const uint8_t*>(address)[i] : 0;
  }

  __device__ uint32_t word(int index) const {
    uint32_t value;
    memcpy(&value, at + 4 * index, sizeof value);
    return value;
  }
};

}  // namespace spark
