// paged.cuh: the tables and caches of attention over blocks. Elements of tables that lead out of their arrays
// make rows NaN.
#pragma once

#include "backend/paged_args.h"

namespace spark {
namespace {

constexpr int64_t kPadding = -1, kBroken = -2;

// The token of the caches at a position of sequence b; kBroken where the table does not say.
__device__ int64_t token_at(const PagedAttentionArgs& args, int64_t b, int64_t position) {
  const PagedAttentionShape& shape = args.shape;
  if (position < 0 || position / shape.block_size >= shape.table) return kBroken;
  const int64_t block = args.block[b * shape.table + position / shape.block_size];
  if (block < 0 || block >= shape.blocks) return kBroken;
  return block * shape.block_size + position % shape.block_size;
}

// Where row n belongs, and the token that it writes, or kPadding or kBroken.
struct PagedRow {
  int64_t sequence, position, token;
};

__device__ PagedRow paged_row(const PagedAttentionArgs& args, int64_t n) {
  int64_t low = -1, high = args.shape.sequences;  // starts[low] <= n < starts[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (args.starts[middle] <= n ? low : high) = middle;
  }
  if (low < 0 || n >= args.starts[low + 1]) return {kPadding, 0, kPadding};
  const int64_t past = args.past[low], position = past + n - args.starts[low];
  if (args.slots && args.slots[n] == kPadding) return {low, position, kPadding};
  int64_t token = token_at(args, low, position);
  if (token >= 0 && args.slots) {
    const int64_t slot = args.slots[n];
    token = slot >= 0 && slot < args.shape.blocks * args.shape.block_size ? slot : kBroken;
  }
  return {low, position, past < 0 || args.starts[low] < 0 ? kBroken : token};
}

// The numbers of codes with a scale.
struct Int8 {
  using Code = int8_t;
  __device__ static float widen(int8_t code) { return code; }
};

// The elements of a head of a token in a cache, indexed like an array.
template <typename Format>
struct CachedHead {
  const typename Format::Code* data;
  float scale;

  __device__ CachedHead(const void* cache, const float* scales, const PagedAttentionShape& shape,
                        int64_t token, int64_t head)
      : data(nullptr), scale(1) {
    if (token < 0) return;
    const int64_t row = token * shape.kv_heads + head;
    data = static_cast<const typename Format::Code*>(cache) + row * shape.depth;
    if (scales) scale = scales[row];
  }
  __device__ explicit operator bool() const { return data != nullptr; }
  __device__ float operator[](int64_t d) const { return Format::widen(data[d]) * scale; }
};

}  // namespace
}  // namespace spark
