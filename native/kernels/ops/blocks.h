// blocks.h: the tile sizes of thread blocks in this folder, for the kernels and their launchers.
#pragma once

#include <cstdint>

namespace spark {

// elementwise.cu: elements of the result. As long as kFull blocks are enough, which fill every GPU,
// a thread has one, then up to kElements.
namespace view_block {
constexpr int kThreads = 256, kFull = 1024, kElements = 4;
}

// move.cu: a square tile of a transposed copy, of which a warp moves a line at a time.
namespace copy_block {
constexpr int kSide = 32, kHeight = 8, kThreads = kSide * kHeight;
}

// normalization.cu: a row or a channel; a row of a normalization that is long.
namespace normalization_block {
constexpr int kThreads = 256, kThreadsOfLong = 1024;
}

// top_k.cu: a row.
namespace top_k_block {
constexpr int kThreads = 256;
}

}  // namespace spark
