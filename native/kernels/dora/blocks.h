// blocks.h: the tile sizes of thread blocks in this folder, for the kernels and their launchers.
#pragma once

#include <cstdint>

namespace spark {

// dora.cu: a tile of the weight.
namespace dora_block {
constexpr int kRows = 32, kCols = 512, kThreads = 256;
}

// dora_factor of dora_norm.cu: a square of A·Aᵀ, over as many columns of A.
namespace dora_factor_block {
constexpr int kSide = 64, kThreads = 256;
}

// dora_cross of dora_norm.cu: a tile of the weight.
namespace dora_cross_block {
constexpr int kRows = 256, kCols = 256, kThreads = 256;
}

// dora_norm of dora_norm.cu: rows of the weight, one for each warp.
namespace dora_norm_block {
constexpr int kRows = 8, kThreads = 256;
}

}  // namespace spark
