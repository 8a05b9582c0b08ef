// attention.cc: launchers of attention and its gradients.
#include <algorithm>
#include <string>

#include "backend/cuda/attention/mma_depth.h"
#include "backend/cuda/attention/sum_in_y.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "backend/cuda/runtime/limits.h"
#include "core/error.h"
#include "kernels/attention/backward_args.h"
#include "kernels/attention/blocks.h"

namespace spark::cuda {
namespace {

using attention_block::kRows;
using attention_block::kThreads;
constexpr int kWarp = 32;

// Tiles of the queries that meet one head of keys.
int64_t query_tiles(const AttentionShape& shape, int rows) {
  return ceil_div(shape.heads / shape.kv_heads * shape.queries, rows);
}

// Kernels in f32 count in 32 bits what one head of keys meets.
void check_sizes(const AttentionShape& shape) {
  check_size("attention", "queries of the heads that share keys",
             shape.heads / shape.kv_heads * shape.queries);
  check_size("attention", "keys", shape.keys);
}

int64_t longest_row(const AttentionArgs& args) { return std::max(args.shape.depth, args.shape.value_depth); }

// Whether tensor cores compute a call; CUDA cores do where rows are too long for them.
bool on_tensor_cores(const AttentionArgs& args, int64_t max_depth) {
  return args.compute != Compute::kF32 && longest_row(args) <= max_depth;
}

// A kernel on tensor cores, by the number that it multiplies and the longest rows that it takes.
std::string mma_kernel(const char* operation, const AttentionArgs& args) {
  return message(operation, args.compute == Compute::kF16 ? "_f16" : "_bf16", mma_depth(longest_row(args)));
}

// The rows of all heads of an operand, in the number of the mode.
struct PackedRows {
  PackedRows(const AttentionArgs& args, int64_t heads, int64_t rows, int64_t width,
             const HeadStrides& strides, const float* data)
      : count(args.shape.batch * heads * rows * packed_width(width)), scratch(count * sizeof(uint16_t)) {
    launch("attention_backward_mma",
           args.compute == Compute::kF16 ? "attention_pack_f16" : "attention_pack_bf16",
           Grid{ceil_div(count / 8, kThreads)}, Threads{kThreads}, 0,
           AttentionPackArgs{args.shape.batch, heads, rows, width, strides, data, scratch.as<uint16_t>()});
  }
  const uint16_t* get() const { return scratch.as<const uint16_t>(); }

  const int64_t count;
  const Scratch scratch;
};

void backward_on_tensor_cores(const AttentionBackwardArgs& args, const float* products) {
  const AttentionArgs& forward = args.forward;
  const auto& [batch, heads, kv_heads, queries, keys, depth, value_depth] = forward.shape;
  const PackedRows q(forward, heads, queries, depth, forward.q_strides, forward.q);
  const PackedRows k(forward, kv_heads, keys, depth, forward.k_strides, forward.k);
  const PackedRows v(forward, kv_heads, keys, value_depth, forward.v_strides, forward.v);
  const PackedRows dy(forward, heads, queries, value_depth, forward.y_strides, args.dy);
  const PackedAttention packed{q.get(), k.get(), v.get(), dy.get()};
  const Threads threads{attention_mma_block::kThreads};
  if (args.dq) {
    const int64_t tiles = query_tiles(forward.shape, attention_mma_block::kRows);
    launch("attention_backward_mma", mma_kernel("attention_query_gradient", forward),
           Grid{batch * kv_heads * tiles}, threads, 0, args, packed, products, tiles);
  }
  if (args.dk || args.dv) {
    const int64_t tiles = ceil_div(keys, attention_mma_block::kRows);
    launch("attention_backward_mma", mma_kernel("attention_key_gradient", forward),
           Grid{batch * kv_heads * tiles}, threads, 0, args, packed, products, tiles);
  }
}

}  // namespace

void attention(const AttentionArgs& args) {
  const int64_t heads = args.shape.batch * args.shape.kv_heads;
  if (on_tensor_cores(args, attention_mma_block::kMaxDepth)) {
    const int64_t tiles = query_tiles(args.shape, attention_mma_block::kRows);
    launch("attention_mma", mma_kernel("attention", args), Grid{heads * tiles},
           Threads{attention_mma_block::kThreads}, 0, args, tiles);
    return;
  }
  check_sizes(args.shape);
  const int tiles = static_cast<int>(query_tiles(args.shape, kRows));
  const int64_t count = args.shape.batch * args.shape.heads * args.shape.queries * args.shape.value_depth;
  sum_in_y(args, count, [&](const AttentionArgs& args) {
    launch("attention", "attention_f32", Grid{heads * tiles}, Threads{kThreads}, 0, args, tiles);
  });
}

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.forward.shape;
  const int64_t rows = shape.batch * shape.heads * shape.queries, heads = shape.batch * shape.kv_heads;
  const Scratch products(rows * sizeof(float));
  launch("attention", "attention_products_f32", Grid{ceil_div(rows, kThreads / kWarp)}, Threads{kThreads}, 0,
         args.forward, args.dy, products.as<float>());
  if (on_tensor_cores(args.forward, attention_mma_block::kMaxGradientDepth)) {
    backward_on_tensor_cores(args, products.as<const float>());
    return;
  }
  check_sizes(shape);
  if (args.dq) {
    const int tiles = static_cast<int>(query_tiles(shape, kRows));
    launch("attention", "attention_query_gradient_f32", Grid{heads * tiles}, Threads{kThreads}, 0, args,
           products.as<const float>(), tiles);
  }
  if (args.dk || args.dv) {
    const int tiles = static_cast<int>(ceil_div(shape.keys, kRows));
    launch("attention", "attention_key_gradient_f32", Grid{heads * tiles}, Threads{kThreads}, 0, args,
           products.as<const float>(), tiles);
  }
}

}  // namespace spark::cuda
