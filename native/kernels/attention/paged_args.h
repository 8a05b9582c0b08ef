// paged_args.h: how the work of attention over blocks is shared out, for the kernels and their launchers.
#pragma once

#include <cstdint>

#include "kernels/gemm/product_args.h"

namespace spark {

constexpr int64_t kRoundedDepth = 128;  // longer heads leave too few registers

// A block has `tokens` rows of the call and up to `heads` of the heads that share a head of keys.
struct PagedTiles {
  int64_t tokens, heads;
  int64_t of_group;         // tiles that the heads of a group make
  int64_t chunks;           // a block has one of so many chunks of positions; 0: all of them
  RoundedTarget rounded{};  // where results go in codes, of heads up to kRoundedDepth on tensor cores;
                            // scale 0: nowhere
};

// What rows have summed over each chunk: [rows, heads, chunks], each the largest score, Σ e^(w − largest) and
// the same with the D elements of the values.
constexpr int64_t kPagedPartHead = 2;

}  // namespace spark
