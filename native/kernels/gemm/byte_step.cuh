// byte_step.cuh: products of bytes in the tiles of tiles.cuh. Two bytes take the place of a 16-bit number,
// whose fragments then are those of this instruction, too; a tile is 64 along K. Bytes are multiplied as they
// lie in memory, with zero points p and q: Σ (l − p)(r − q) = Σ lr − p·Σr − q·(Σl − K·p).
#pragma once

#include <type_traits>

#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

constexpr int kByteStages = 3;

// Multiplies bytes, and sums those of a line for each thread: of the left side, then of the right one.
template <int kTile, typename Left, typename Right>
struct ByteStep {
  const Stages<kByteStages, kTile>& stages;
  bool sums_lines;
  uint32_t& line_sum;

  __device__ void start(int, int64_t) const {}
  __device__ void multiply(int stage, int k, int m, int n, uint32_t (&sums)[4], const uint32_t (&a)[4],
                           uint32_t b0, uint32_t b1) const {
    if (m == 0 && n == 0 && sums_lines) add_line(stage, k);
    mma_16x8x32<Left, Right>(sums, a, b0, b1);
  }

  __device__ void add_line(int stage, int k) const {
    constexpr uint32_t kOnes = 0x01010101;
    const bool of_left = threadIdx.x < kTile;
    const auto& tile = of_left ? stages.left[stage] : stages.right[stage];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Eight eight = *reinterpret_cast<const Eight*>(tile + row_offset(threadIdx.x % kTile, k * 2 + i));
#pragma unroll
      for (const uint32_t four : eight.pairs) {
        line_sum = (of_left ? std::is_signed_v<Left> : std::is_signed_v<Right>)
                       ? __dp4a(static_cast<int>(four), static_cast<int>(kOnes), static_cast<int>(line_sum))
                       : __dp4a(four, kOnes, line_sum);
      }
    }
  }
};

// Stages, whose memory the sums take afterwards.
template <int kTile>
union ByteTiles {
  Stages<kByteStages, kTile> stages;
  struct {
    Half<kTile, uint32_t> half;  // of store_tile()
    uint32_t left_sums[kTile], right_sums[kTile];
  } results;

  __device__ void keep(uint32_t line_sum) {
    (threadIdx.x < kTile ? results.left_sums : results.right_sums)[threadIdx.x % kTile] = line_sum;
  }
  // What zero points p of line m of the left and q of line n of the right side take from a sum of `depth`
  // products.
  __device__ uint32_t of_zeros(int64_t m, int64_t n, uint32_t p, uint32_t q, int64_t depth) const {
    return p * results.right_sums[n] + q * (results.left_sums[m] - static_cast<uint32_t>(depth) * p);
  }
};

}  // namespace
}  // namespace spark
