// blocks.h: the tile sizes of thread blocks in this folder, for the kernels and their launchers.
#pragma once

#include <cstdint>

namespace spark {

// conv.cu: a square tile, of which sums are taken in chunks along K.
namespace conv_block {
constexpr int kTile = 64, kChunk = 256, kThreads = 256;
}

// conv_mma.cu: a square tile of one of two sizes.
namespace conv_mma_block {
constexpr int kLargeTile = 128, kSmallTile = 64;
constexpr int threads(int tile) { return 2 * tile; }
}  // namespace conv_mma_block

// conv_channels_last.cu: tiles as those of conv_mma.cu; images are packed in tiles of pixels and channels.
namespace conv_image_block {
constexpr int kPixels = 64, kChannels = 32, kThreads = 256;
}

// conv_integer.cu: tiles as those of conv_mma.cu; images are packed in tiles of pixels and channels.
namespace conv_integer_block {
constexpr int kPixels = 256, kChannels = 32;
}

// conv_winograd.cu: tiles of 2 x 2 outputs, filters, and channels that are summed at a time.
namespace conv_winograd_block {
constexpr int kTilesAcross = 8, kTilesDown = 4, kTiles = kTilesAcross * kTilesDown;
constexpr int kWidth = 2 * kTilesAcross, kHeight = 2 * kTilesDown, kPositions = kWidth * kHeight;
constexpr int kFilters = 64, kChannels = 16, kThreads = 256;
}  // namespace conv_winograd_block

// conv_pack.cu
namespace conv_pack_block {
constexpr int kThreads = 256;
}

}  // namespace spark
