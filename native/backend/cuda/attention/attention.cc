// attention.cc: launchers of attention and its gradients.
#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/attention/blocks.h"

namespace spark::cuda {
namespace {

using attention_block::kRows;
using attention_block::kThreads;

// Tiles of the queries that meet one head of keys.
int64_t query_tiles(const AttentionShape& shape, int rows) {
  return ceil_div(shape.heads / shape.kv_heads * shape.queries, rows);
}

}  // namespace

void attention(const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  const int64_t heads = shape.batch * shape.kv_heads, longest = std::max(shape.depth, shape.value_depth);
  if (args.compute == Compute::kF32 || longest > attention_mma_block::kMaxDepth) {
    const int64_t tiles = query_tiles(shape, kRows);
    launch("attention", "attention_f32", Grid{heads * tiles}, Threads{kThreads}, 0, args, tiles);
    return;
  }
  const int64_t tiles = query_tiles(shape, attention_mma_block::kRows);
  launch(
      "attention_mma",
      message("attention_", args.compute == Compute::kF16 ? "f16" : "bf16", longest <= 64 ? "_64" : "_128"),
      Grid{heads * tiles}, Threads{attention_mma_block::kThreads}, 0, args, tiles);
}

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.forward.shape;
  const int64_t rows = shape.batch * shape.heads * shape.queries, heads = shape.batch * shape.kv_heads;
  const Scratch products(rows * sizeof(float));
  launch("attention", "attention_products_f32", Grid{ceil_div(rows, kThreads)}, Threads{kThreads}, 0,
         args.forward, args.dy, products.as<float>());
  if (args.dq) {
    const int64_t tiles = query_tiles(shape, kRows);
    launch("attention", "attention_query_gradient_f32", Grid{heads * tiles}, Threads{kThreads}, 0, args,
           products.as<const float>(), tiles);
  }
  if (args.dk || args.dv) {
    const int64_t tiles = ceil_div(shape.keys, kRows);
    launch("attention", "attention_key_gradient_f32", Grid{heads * tiles}, Threads{kThreads}, 0, args,
           products.as<const float>(), tiles);
  }
}

}  // namespace spark::cuda
