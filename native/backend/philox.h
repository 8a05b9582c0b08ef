// philox.h: random words that a counter and a key name, Philox4x32 with ten rounds (Salmon et al. 2011), so
// that any element of any step can be drawn alone. One source for the CPU and the CUDA kernels.
#pragma once

#include <cstdint>

#include "core/float_formats.h"

namespace spark {

struct Words {
  uint32_t word[4];
};

SPARK_HOST_DEVICE inline Words philox(Words counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{counter.word[0]} * 0xD2511F53u, b = uint64_t{counter.word[2]} * 0xCD9E8D57u;
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace spark
