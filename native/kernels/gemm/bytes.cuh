// bytes.cuh: a few bytes of memory in registers.
#pragma once

#include <cstdint>
#include <cstring>

namespace spark {

// kBytes bytes of memory. Trap: they are kept in words, since of an array of bytes nvcc takes each word apart
// right behind its load.
template <int kBytes>
struct alignas(kBytes < 16 ? kBytes : 16) Bytes {
  uint32_t words[kBytes / 4];

  // Neighbouring elements, read at once where the address allows; those from `inside` on are zeros.
  template <typename Code>
  __device__ void load(const Code* from, int64_t inside) {
    constexpr int kOfWord = 4 / sizeof(Code);
    if (inside >= kBytes / 4 * kOfWord && reinterpret_cast<uintptr_t>(from) % alignof(Bytes) == 0) {
      *this = *reinterpret_cast<const Bytes*>(from);
      return;
    }
    for (int i = 0; i < kBytes / 4 * kOfWord; ++i) {
      uint32_t bits = 0;
      if (i < inside) memcpy(&bits, from + i, sizeof(Code));
      uint32_t& word = words[i / kOfWord];
      word = (i % kOfWord == 0 ? 0 : word) | bits << i % kOfWord * 8 * sizeof(Code);
    }
  }

  // Writes those before `inside`, at once where the address allows.
  template <typename Code>
  __device__ void store(Code* to, int64_t inside) const {
    constexpr int kCount = kBytes / sizeof(Code);
    if (inside >= kCount && reinterpret_cast<uintptr_t>(to) % alignof(Bytes) == 0) {
      *reinterpret_cast<Bytes*>(to) = *this;
      return;
    }
    for (int i = 0; i < kCount; ++i) {
      if (i >= inside) return;
      to[i] = at<Code>(i);
    }
  }

  // Element `index` of an array of Code becomes `code`; elements are set in their order.
  template <typename Code>
  __device__ void set(int index, Code code) {
    const int first = index * static_cast<int>(sizeof(Code));
    uint32_t bits = 0;
    memcpy(&bits, &code, sizeof code);
    uint32_t& word = words[first / 4];
    word = (first % 4 == 0 ? 0 : word) | bits << first % 4 * 8;
  }

  // Element `index` of an array of Code.
  template <typename Code>
  __device__ Code at(int index) const {
    const int first = index * static_cast<int>(sizeof(Code));
    const uint32_t bits = words[first / 4] >> first % 4 * 8;
    Code code;
    memcpy(&code, &bits, sizeof code);
    return code;
  }
};

}  // namespace spark
