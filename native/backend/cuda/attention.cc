#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"

namespace spark::cuda {
namespace {

constexpr int kRows = 16, kThreads = 256;  // attention.cu

// Tiles of the queries that meet one head of keys.
int64_t query_tiles(const AttentionShape& shape) {
  return ceil_div(shape.heads / shape.kv_heads * shape.queries, kRows);
}

}  // namespace

void attention(const AttentionArgs& args) {
  const int64_t tiles = query_tiles(args.shape);
  launch("attention", "attention_f32", Grid{args.shape.batch * args.shape.kv_heads * tiles},
         Threads{kThreads}, 0, args, tiles);
}

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.forward.shape;
  const int64_t rows = shape.batch * shape.heads * shape.queries, heads = shape.batch * shape.kv_heads;
  const Scratch products(rows * sizeof(float));
  launch("attention", "attention_products_f32", Grid{ceil_div(rows, kThreads)}, Threads{kThreads}, 0,
         args.forward, args.dy, products.as<float>());
  if (args.dq) {
    const int64_t tiles = query_tiles(shape);
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
