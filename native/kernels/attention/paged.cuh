// paged.cuh: the tables and caches of attention over blocks. Elements of tables that lead out of their arrays
// make rows NaN.
#pragma once

#include "backend/paged_args.h"
#include "kernels/attention/paged_args.h"
#include "kernels/gemm/bytes.cuh"

namespace spark {
namespace {

constexpr int64_t kPadding = -1, kBroken = -2;

// The token of the caches at a position of sequence b; kBroken where the table does not say.
__device__ int64_t token_at(const PagedAttentionArgs& args, int64_t b, int64_t position) {
  const PagedAttentionShape& shape = args.shape;
  if (position < 0 || position >= shape.table * shape.block_size) return kBroken;
  const auto at = static_cast<unsigned>(position), size = static_cast<unsigned>(shape.block_size);
  const int64_t block = args.block[b * shape.table + at / size];
  if (block < 0 || block >= shape.blocks) return kBroken;
  return block * shape.block_size + at % size;
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

// The rows of a tile, which share a head of keys: tokens that follow each other, each with some of its heads.
struct PagedTile {
  const PagedAttentionArgs& args;
  const PagedTiles& tiles;
  int64_t kv_head, first_head, first_token;

  __device__ PagedTile(const PagedAttentionArgs& args, const PagedTiles& tiles, unsigned tile)
      : args(args), tiles(tiles) {
    const auto of_group = static_cast<unsigned>(tiles.of_group);
    const auto kv_heads = static_cast<unsigned>(args.shape.kv_heads);
    kv_head = tile / of_group % kv_heads;
    first_head = tile % of_group * tiles.heads;
    first_token = tile / of_group / kv_heads * tiles.tokens;
  }

  __device__ int64_t token_of(int row) const { return first_token + row / heads(); }
  // The head of the queries of a row; negative where there is no such row.
  __device__ int64_t head_of(int row) const {
    const int group = static_cast<int>(args.shape.heads) / static_cast<int>(args.shape.kv_heads);
    const int64_t head = first_head + row % heads();
    const bool inside = row < tiles.tokens * tiles.heads && token_of(row) < args.shape.tokens && head < group;
    return inside ? kv_head * group + head : -1;
  }

 private:
  __device__ int heads() const { return static_cast<int>(tiles.heads); }
};

// The numbers of codes with a scale.
struct Int8 {
  using Code = int8_t;
  __device__ static float widen(int8_t code) { return code; }
};

// The elements of a head of a token in a cache, indexed like an array.
template <typename Format>
struct CachedHead {
  using Code = typename Format::Code;
  const Code* data;
  int depth;
  float scale;

  // `row` counts the heads of all tokens; negative where there is none.
  __device__ CachedHead(const void* cache, const float* scales, int depth, int64_t row)
      : data(nullptr), depth(depth), scale(1) {
    if (row < 0) return;
    data = static_cast<const Code*>(cache) + row * depth;
    if (scales) scale = scales[row];
  }
  __device__ explicit operator bool() const { return data != nullptr; }
  __device__ float operator[](int64_t d) const { return Format::widen(data[d]) * scale; }

  // visit(d, element first + d) for d < kCount inside of the head, from loads of 16 bytes.
  template <int kCount, typename Visit>
  __device__ void each(int first, const Visit& visit) const {
    constexpr int kCodes = 16 / sizeof(Code);
    static_assert(kCount % kCodes == 0);
    for (int d = 0; d < kCount && first + d < depth; d += kCodes) {
      Bytes<16> bytes;
      bytes.load(data + first + d, depth - first - d);
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        if (first + d + i >= depth) break;
        visit(d + i, Format::widen(bytes.template at<Code>(i)) * scale);
      }
    }
  }
};

}  // namespace
}  // namespace spark
