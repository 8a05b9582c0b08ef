// paged_attention.cc: launcher of attention over blocks of keys and values.
#include <algorithm>
#include <optional>

#include "backend/cuda/attention/mma_depth.h"
#include "backend/cuda/attention/sum_in_y.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/quantize/nvfp4_rows.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "backend/cuda/runtime/limits.h"
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
constexpr int64_t kMmaRowsOfSequence = 16;         // on average, from which on tensor cores take rows
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

// Whether tensor cores take the rows. Tiles whose rows are of many sequences would meet the keys of one after
// the other.
bool takes_mma(const PagedAttentionArgs& args) {
  if (args.compute != Compute::kBF16 && args.compute != Compute::kF16) return false;
  const PagedAttentionShape& shape = args.shape;
  const DType number = args.compute == Compute::kF16 ? DType::kF16 : DType::kBF16, cache = args.cache_dtype;
  return (cache == number || cache == DType::kF32 || cache == DType::kF8E4M3 || cache == DType::kI8) &&
         shape.depth <= attention_mma_block::kMaxDepth && shape.tokens > kFewTokens &&
         shape.tokens >= kMmaRowsOfSequence * shape.sequences;
}

void launch_mma(const PagedAttentionArgs& args, const RoundedTarget& rounded, const float* queries) {
  const PagedAttentionShape& shape = args.shape;
  const int64_t group = shape.heads / shape.kv_heads,
                heads = std::min<int64_t>(group, attention_mma_block::kRows);
  const PagedTiles tiles{attention_mma_block::kRows / heads, heads, ceil_div(group, heads), 0, rounded};
  launch("paged_attention_mma",
         message("paged_attention_mma_", args.compute == Compute::kF16 ? "f16_" : "bf16_",
                 dtype_name(args.cache_dtype), mma_depth(shape.depth)),
         Grid{ceil_div(shape.tokens, tiles.tokens) * shape.kv_heads * tiles.of_group},
         Threads{attention_mma_block::kThreads}, 0, args, tiles, queries);
}

// Whether y is stored rounded by the kernel that computes it: on tensor cores in codes, or as chunks are
// merged.
bool stores_rounded(const PagedAttentionArgs& args, Nvfp4Form form) {
  const PagedAttentionShape& shape = args.shape;
  if (shape.depth % kNvfp4Block != 0) return false;
  if (takes_mma(args)) return form == Nvfp4Form::kCodes && shape.depth <= kRoundedDepth;
  return tiles_for(shape).chunks > 0;
}

// y in `rounded`, unless its scale is 0, by kernels that store it so, and in f32 unless that is null.
void attend(const PagedAttentionArgs& args, const RoundedTarget& rounded = {}) {
  const PagedAttentionShape& shape = args.shape;
  check_size("attention", "positions of a sequence", shape.table * shape.block_size);
  const char* type = dtype_name(args.cache_dtype);
  const int64_t rows = shape.tokens * shape.heads;
  const Scratch queries(rows * shape.depth * sizeof(float));
  launch("paged_attention", message("paged_prepare_", type),
         Grid{shape.tokens * (shape.heads + shape.kv_heads)}, Threads{kHeadThreads}, 0, args,
         queries.as<float>());
  if (takes_mma(args)) return launch_mma(args, rounded, queries.as<const float>());
  const PagedTiles tiles = tiles_for(shape);
  const int64_t count = ceil_div(shape.tokens, tiles.tokens) * shape.kv_heads * tiles.of_group;
  const auto attend_tiles = [&](const PagedAttentionArgs& args, float* parts) {
    launch("paged_attention", message("paged_attention_", type),
           Grid{count * std::max<int64_t>(tiles.chunks, 1)}, Threads{kThreads}, 0, args, tiles,
           queries.as<const float>(), parts);
  };
  if (tiles.chunks == 0) {
    sum_in_y(args, rows * shape.depth, [&](const PagedAttentionArgs& args) { attend_tiles(args, nullptr); });
    return;
  }
  const Scratch parts(rows * tiles.chunks * (shape.depth + kPagedPartHead) * sizeof(float));
  attend_tiles(args, parts.as<float>());
  const auto merge = [&](const char* kernel, const auto&... target) {
    launch("paged_merge", kernel, Grid{rows}, Threads{kHeadThreads}, 0, args, parts.as<const float>(),
           tiles.chunks, target...);
  };
  rounded.scale == 0 ? merge("paged_merge_f32") : merge("paged_merge_rounded", rounded);
}

}  // namespace

void paged_attention(const PagedAttentionArgs& args) {
  const PagedAttentionShape& shape = args.shape;
  if (shape.tokens == 0 || shape.heads == 0) return;
  if (!args.y_rounded) return attend(args);
  check_nvfp4_memory(args.y_rounded);
  const int64_t cols = shape.heads * shape.depth;
  const Nvfp4Form form = nvfp4_form(shape.tokens, cols);
  if (stores_rounded(args, form)) {
    return attend(args, {nvfp4_rows_in(args.y_rounded, form, shape.tokens, cols), args.y_scale});
  }
  std::optional<Scratch> y;
  PagedAttentionArgs in_floats = args;
  if (!args.y) in_floats.y = y.emplace(shape.tokens * cols * sizeof(float)).as<float>();
  attend(in_floats);
  Nvfp4Activation(form, static_cast<const float*>(in_floats.y), shape.tokens, cols, args.y_scale,
                  args.y_rounded);
}

}  // namespace spark::cuda
