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

// bytes.cu: a thread casts kVectors vectors of kLength floats, looks up kVectors vectors of kRun bytes, and
// adds a vector of kRun bytes.
namespace affine_block {
constexpr int kThreads = 256, kVectors = 4, kLength = 4;
}
namespace lookup_block {
constexpr int kThreads = 256, kVectors = 2;
}
namespace binary_bytes_block {
constexpr int kThreads = 128;
}

// bytes.cu: a warp sums a row of up to kOfWarp bytes, kRows in a block; longer ones are summed by blocks, in
// parts of up to kLongest, so that the sum of a thread fits into 32 bits.
namespace mean_bytes_block {
constexpr int kThreads = 256, kRows = kThreads / 32, kOfWarp = 4096;
constexpr int64_t kPart = 1 << 15, kLongest = 1 << 28, kMaxBlocks = 1024;
}  // namespace mean_bytes_block

}  // namespace spark
