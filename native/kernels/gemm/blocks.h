// blocks.h: the tile sizes of thread blocks in this folder, for the kernels and their launchers.
#pragma once

#include <cstdint>

namespace spark {

// linear.cu: a square tile, of which sums are taken in chunks along K; blocks that a multiprocessor holds.
namespace linear_block {
constexpr int kTile = 64, kChunk = 256, kThreads = 256, kBlocks = 4;
}

// expert_linear.cu: some rows of one expert by as many outputs as a warp has threads; expert_sort has a
// thread for each expert, and one for choices out of range.
namespace expert_linear_block {
constexpr int kRows = 8, kCols = 32, kThreads = 128, kSortThreads = 1024, kMaxExperts = kSortThreads - 1;
}

// column_sums.cuh: some columns of a chunk of rows.
namespace column_sums_block {
constexpr int kWidth = 32, kHeight = 8, kThreads = kWidth * kHeight, kChunk = linear_block::kChunk;
}  // namespace column_sums_block

// linear_mma.cu and linear_fp4_mma.cu: a square tile.
namespace linear_mma_block {
constexpr int kTile = 128, kThreads = 256;
}

// linear_few_mma.cu and linear_integer_few_mma.cu: some rows of the weight by a few tokens.
namespace linear_few_mma_block {
constexpr int kRows = 16, kTokens = 16, kThreads = 512;
// For a weight of so many rows: many blocks at a time hide what each of them waits for, few need many
// threads.
constexpr int threads(int64_t rows) {
  return rows <= 2048 ? kThreads : rows <= 4096 ? kThreads / 2 : kThreads / 4;
}
}  // namespace linear_few_mma_block

// linear_batch_mma.cu: some rows of the weight by the rows of a batch, in spans along K.
namespace linear_batch_mma_block {
constexpr int kCols = 64, kRows = 64, kFewRows = 32, kSpan = 128, kThreads = 256;
}

// product_epilogue.cu
namespace product_epilogue_block {
constexpr int kRows = 16, kCols = 128, kThreads = 256;
}

// matmul_mma.cu: a square tile. Both sides come as f32: a larger one would leave registers for one block
// only.
namespace matmul_mma_block {
constexpr int kTile = 64, kThreads = 128;
}

// pack_columns of pack.cu: a square that is transposed.
namespace pack_columns_block {
constexpr int kSide = 32, kHeight = 8;
}

// linear_integer_mma.cu: a square tile.
namespace linear_integer_mma_block {
constexpr int kLargeTile = 128, kSmallTile = 64;
constexpr int threads(int tile) { return 2 * tile; }
}  // namespace linear_integer_mma_block

}  // namespace spark
