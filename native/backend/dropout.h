// dropout.h: four neighbours of a dropout mask, the same bits on every backend.
#pragma once

#include "backend/backend.h"
#include "backend/philox.h"

namespace spark {

// Writes mask[4 · block, 4 · block + 4), as far as it is there.
SPARK_HOST_DEVICE inline void drop_block(const DropoutMaskArgs& args, int64_t block) {
  const Words counter{
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), args.state[1], args.state[2]}};
  const Words random = philox(counter, args.state[0], args.stream);
  const int64_t start = 4 * block;
  for (int64_t i = 0; i < 4 && start + i < args.count; ++i) {
    args.mask[start + i] = random.word[i] < args.threshold ? 0 : args.keep;
  }
}

}  // namespace spark
