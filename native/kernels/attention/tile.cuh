// tile.cuh: the products of a tile of rows with columns, for the attention kernels in f32.
#pragma once

#include "kernels/attention/blocks.h"

namespace spark {
namespace {

using attention_block::kRows;
using attention_block::kThreads;
constexpr int kCols = 64, kDepth = 32;
constexpr int kDots =
    kRows * kCols / kThreads;  // scores of a thread: rows threadIdx.x / kCols + i · (kRows / kDots)
constexpr int kStep = kRows / kDots;

// dots[i] = left row · right row for the thread's pairs; rows that are null give 0. A row is a pointer, or
// what is indexed like one.
template <typename Left, typename Right>
__device__ void multiply(const Left& left, const Right& right, int64_t depth, float (&dots)[kDots]) {
  __shared__ float a[kRows][kDepth], b[kCols][kDepth + 1];
  for (float& dot : dots) dot = 0;
  for (int64_t first = 0; first < depth; first += kDepth) {
    __syncthreads();  // the last piece has been used
    for (int i = threadIdx.x; i < (kRows + kCols) * kDepth; i += kThreads) {
      const int row = i / kDepth, d = i % kDepth;
      const auto element = [&](const auto& from) {
        return from && first + d < depth ? from[first + d] : 0.0f;
      };
      if (row < kRows) {
        a[row][d] = element(left(row));
      } else {
        b[row - kRows][d] = element(right(row - kRows));
      }
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      for (int i = 0; i < kDots; ++i) {
        dots[i] = fmaf(a[threadIdx.x / kCols + i * kStep][d], b[threadIdx.x % kCols][d], dots[i]);
      }
    }
  }
  __syncthreads();
}

}  // namespace
}  // namespace spark
