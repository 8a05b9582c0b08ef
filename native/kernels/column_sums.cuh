// column_sums.cuh: sums of columns over a chunk of the rows of a matrix. A block is kWidth columns wide; its
// kHeight rows of threads take every kHeight-th row each and are added in order.
#pragma once

#include "kernels/gemm/blocks.h"

namespace spark {

// add = of_column(col), then add(row, sums) for each row of the block's chunk, then store(chunk * cols + col,
// sums) of kCount sums.
template <int kCount, typename OfColumn, typename Store>
__device__ void column_sums(int64_t rows, int64_t cols, const OfColumn& of_column, const Store& store) {
  using namespace column_sums_block;
  constexpr int64_t kRows = column_sums_block::kChunk;
  __shared__ float of_rows[kCount][kHeight][kWidth];
  const int64_t groups = (cols + kWidth - 1) / kWidth;
  const int64_t col = blockIdx.x % groups * kWidth + threadIdx.x;
  const int64_t chunk = blockIdx.x / groups;
  float sums[kCount] = {};
  if (col < cols) {
    const auto add = of_column(col);
#pragma unroll(8 / kCount)
    for (int64_t row = chunk * kRows + threadIdx.y; row < min(rows, (chunk + 1) * kRows); row += kHeight) {
      add(row, sums);
    }
  }
#pragma unroll
  for (int n = 0; n < kCount; ++n) of_rows[n][threadIdx.y][threadIdx.x] = sums[n];
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (int y = 1; y < kHeight; ++y) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) sums[n] += of_rows[n][y][threadIdx.x];
  }
  store(chunk * cols + col, sums);
}

}  // namespace spark
