// paged_attention.cc: launcher of attention over blocks of keys and values.
#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "core/dtype.h"
#include "core/error.h"
#include "kernels/attention/blocks.h"
#include "kernels/attention/paged_args.h"

namespace spark::cuda {
namespace {

using attention_block::kRows;
using attention_block::kThreads;

constexpr int kHeadThreads = 128;                  // elements of most heads
constexpr int64_t kFewTokens = 64;                 // up to so many rows blocks share out positions, too
constexpr int64_t kPartBytes = int64_t{64} << 20;  // that the chunks of all rows may take

// A block reads keys for all heads of a group, unless processors would be left without work: then blocks of
// fewer heads read them again, which L2 holds.
PagedTiles tiles_for(const PagedAttentionShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t chunks = ceil_div(shape.table * shape.block_size, kPagedChunk);
  const int64_t part = (shape.depth + kPagedPartHead) * static_cast<int64_t>(sizeof(float));
  int64_t heads = std::min<int64_t>(group, kRows);
  if (shape.tokens > kFewTokens) return {kRows / heads, heads, ceil_div(group, heads), 0};
  const bool fits = chunks <= kPartBytes / part / std::max<int64_t>(shape.tokens * shape.heads, 1);
  const int64_t tiles = shape.tokens * shape.kv_heads * (fits ? chunks : 1);
  const int64_t processors = Device::current().attributes.multiprocessors;
  while (heads > 1 && tiles * ceil_div(group, heads) < processors) heads = ceil_div(heads, 2);
  return {1, heads, ceil_div(group, heads), fits ? chunks : 0};
}

}  // namespace

void paged_attention(const PagedAttentionArgs& args) {
  const PagedAttentionShape& shape = args.shape;
  if (shape.tokens == 0 || shape.heads == 0) return;
  const char* type = dtype_name(args.cache_dtype);
  const int64_t rows = shape.tokens * shape.heads;
  const PagedTiles tiles = tiles_for(shape);
  const Scratch queries(rows * shape.depth * sizeof(float));
  const Scratch parts(rows * tiles.chunks * (shape.depth + kPagedPartHead) * sizeof(float));
  launch("paged_attention", message("paged_prepare_", type),
         Grid{shape.tokens * (shape.heads + shape.kv_heads)}, Threads{kHeadThreads}, 0, args,
         queries.as<float>());
  const int64_t count = ceil_div(shape.tokens, tiles.tokens) * shape.kv_heads * tiles.of_group;
  launch("paged_attention", message("paged_attention_", type),
         Grid{count * std::max<int64_t>(tiles.chunks, 1)}, Threads{kThreads}, 0, args, tiles,
         queries.as<const float>(), parts.as<float>());
  if (tiles.chunks == 0) return;
  launch("paged_attention", "paged_merge_f32", Grid{rows}, Threads{kHeadThreads}, 0, args,
         parts.as<const float>(), tiles.chunks);
}

}  // namespace spark::cuda
