// conv_pass.h: what the launchers of convolutions share: sizes, and how many tiles there are.
#pragma once

#include <cstdint>

#include "kernels/conv/conv_args.h"

namespace spark::cuda {

constexpr int64_t kDirectLines = 3;        // up to so many lines of a group have a thread for each sum
constexpr int64_t kBlocksOfProcessor = 2;  // of tiles of 128, at the same time

inline int64_t numel(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

// Refuses a size that kernels of convolutions cannot count.
void check_conv_size(const char* what, int64_t size);

// The sizes of a convolution, which are checked.
ConvPassArgs pass_of(const ConvShape& shape);

// One product for each group; `kernel` names it.
struct Pass {
  const char* kernel;
  bool transposed;
  int64_t lines, cols, depth;  // of a group
};

int64_t tiles_of(const Pass& pass, int64_t groups, int64_t tile);

// Tiles of 128 need fewer elements of x; those of 64 are more, for more processors.
bool takes_large_tiles(const Pass& pass, int64_t groups);

}  // namespace spark::cuda
