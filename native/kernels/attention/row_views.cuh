// row_views.cuh: masks and causality of the rows of queries of a warp, for the attention kernels in 16 bits.
#pragma once

#include "kernels/attention/attention.cuh"
#include "kernels/attention/tile_mma.cuh"

namespace spark {
namespace {

// What a lane sees of each of its two rows.
struct RowViews {
  const float* mask[2];  // null: none
  int seen[2];           // keys that causality lets it see

  template <typename Queries>
  __device__ RowViews(const Queries& queries, int top) {
    const AttentionArgs& args = queries.args;
    for (int i = 0; i < 2; ++i) {
      const int row = top + i * 8;
      mask[i] = args.mask ? queries.row_of(args.mask, args.mask_strides, row) : nullptr;
      const int64_t keys = args.shape.keys;
      seen[i] = static_cast<int>(args.causal ? min(keys, queries.query(row) + args.causal_offset + 1) : keys);
    }
  }

  // Adds masks to the scores of the keys from `first` on and hides what is not seen.
  template <int kBlocks>
  __device__ void apply(int first, float (&scores)[kBlocks][4]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int end = max(0, min(kBlocks * 8, seen[row] - first));
      if (mask[row]) {
        float added[kBlocks * 2];
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) added[i] = key_of(i) < end ? mask[row][first + key_of(i)] : 0;
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) scores[i / 2][row * 2 + i % 2] += added[i] * kLog2e;
      }
      if (end < kBlocks * 8) hide_keys(scores, row, 0, end);
    }
  }
};

}  // namespace
}  // namespace spark
