// blocks.h: the tile sizes of thread blocks in this folder, for the kernels and their launchers.
#pragma once

#include <cstdint>

namespace spark {

// top_k.cu: a row.
namespace top_k_block {
constexpr int kThreads = 256;
}

}  // namespace spark
