// blocks.h: the tile sizes of thread blocks in this folder, for the kernels and their launchers.
#pragma once

#include <cstdint>

namespace spark {

// attention.cu: rows of queries, or of keys for their gradient.
namespace attention_block {
constexpr int kRows = 16, kThreads = 256;
}

// attention_mma.cu, paged_attention_mma.cu and attention_backward_mma.cu: rows of queries, or of keys for
// their gradient. They take q, k and v of up to kMaxDepth elements a row, gradients of kMaxGradientDepth.
namespace attention_mma_block {
constexpr int kRows = 64, kMaxDepth = 256, kMaxGradientDepth = 128, kThreads = 128;
}

}  // namespace spark
