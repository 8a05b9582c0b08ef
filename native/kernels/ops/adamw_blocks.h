// adamw_blocks.h: the blocks of threads of an AdamW step; read by adamw.cu, filled by its launcher.
#pragma once

#include "backend/backend.h"

namespace spark {

// Blocks of kThreads elements, numbered through all tensors: those of tensor t begin at first[t].
struct AdamwBlocks {
  static constexpr int kThreads = 256;

  explicit AdamwBlocks(const AdamwArgs& args) {
    for (int64_t t = 0; t < args.tensor_count; ++t) {
      first[t + 1] = first[t] + (args.tensors[t].count + kThreads - 1) / kThreads;
    }
  }

  int64_t first[kMaxAdamwTensors + 1] = {};
};

static_assert(sizeof(AdamwArgs) + sizeof(AdamwBlocks) + sizeof(void*) <= 4096, "kernel parameters");

}  // namespace spark
