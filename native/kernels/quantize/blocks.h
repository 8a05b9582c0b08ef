// blocks.h: the tile sizes of thread blocks in this folder, for the kernels and their launchers.
#pragma once

#include <cstdint>

namespace spark {

// Elements that a thread reads at a time: one 16-byte word of the narrowest format.
constexpr int kRun = 16;

namespace amax_block {
constexpr int kThreads = 256;
}

namespace fp8_block {
constexpr int kThreads = 256;
}

// nvfp4_activation.cu: a row.
namespace nvfp4_activation_block {
constexpr int kThreads = 256;
}

// cast.cu: a thread casts some vectors of kVectorBits, in the wider format; elements count kFewestBits or
// more.
namespace cast_block {
constexpr int kThreads = 256, kVectors = 4, kVectorBits = 128, kFewestBits = 16;
}

}  // namespace spark
