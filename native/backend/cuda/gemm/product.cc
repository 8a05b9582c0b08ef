// product.cc: launchers of f32 GEMM and its operands.
#include "backend/cuda/gemm/product.h"

#include <string>

#include "backend/block_formats.h"
#include "backend/cuda/gemm/column_sums.h"
#include "backend/cuda/gemm/fp4_product.h"
#include "backend/cuda/gemm/product_mma.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "kernels/gemm/blocks.h"

namespace spark::cuda {
namespace {

using linear_block::kChunk;
using linear_block::kThreads;
using linear_block::kTile;
constexpr int64_t kTilesOfProcessor = 2;  // fewer leave processors without work
constexpr int64_t kFewestParts = 4;       // of a sum for which one more kernel is worth it
constexpr size_t kMostPartBytes = size_t{32} << 20;

// Where tiles are few, chunks are summed apart and added in the order of a single sum, which changes no bit.
void launch_product(const char* kernel, const ProductArgs& args) {
  const std::string name = std::string(kernel) + dtype_name(args.w.dtype);
  const char* family = is_block_format(args.w.dtype) ? "linear_blocks" : "linear";
  const int64_t tiles = ceil_div(args.rows, kTile) * ceil_div(args.cols, kTile);
  const int64_t chunks = ceil_div(args.depth, kChunk) + ceil_div(args.depth2, kChunk);
  const int64_t count = args.rows * args.cols;
  const size_t bytes = chunks * count * sizeof(float);
  const bool few = tiles > 0 && tiles < kTilesOfProcessor * Device::current().attributes.multiprocessors;
  if (!few || chunks < kFewestParts || bytes > kMostPartBytes) {
    return launch(family, name, Grid{tiles}, Threads{kThreads}, 0, args);
  }
  const Scratch memory(bytes);
  ProductArgs parts = args;
  parts.parts = memory.as<float>();
  launch(family, name, Grid{tiles * chunks}, Threads{kThreads}, 0, parts);
  launch("linear", "linear_add_parts_f32", Grid{ceil_div(count, kThreads)}, Threads{kThreads}, 0, parts,
         chunks);
}

}  // namespace

Lines rows_of(const float* matrix, int64_t cols) {
  return {.data = matrix, .line_stride = cols, .k_stride = 1};
}

Lines columns_of(const float* matrix, int64_t cols) {
  return {.data = matrix, .line_stride = 1, .k_stride = cols};
}

Weight as_weight(const float* matrix, int64_t rows, int64_t cols) {
  Weight weight{};
  weight.dtype = DType::kF32;
  weight.rows = rows;
  weight.cols = cols;
  weight.data = matrix;
  return weight;
}

ProductArgs with_rows(int64_t rows, Lines a, const Weight& weight, float* out) {
  ProductArgs args{.rows = rows, .cols = weight.rows, .depth = weight.cols, .a = a, .w = weight};
  args.epilogue.out = out;
  args.epilogue.row_stride = weight.rows;
  return args;
}

ProductArgs with_columns(int64_t rows, Lines a, const Weight& weight, float* out) {
  ProductArgs args{.rows = rows, .cols = weight.cols, .depth = weight.rows, .a = a, .w = weight};
  args.epilogue.out = out;
  args.epilogue.row_stride = weight.cols;
  return args;
}

void launch_rows(const ProductArgs& args) {
  switch (args.compute) {
    case Compute::kF32:
      return launch_product("linear_", args);
    case Compute::kBF16:
    case Compute::kF16:
      return launch_mma_rows(args);
    case Compute::kNVFP4:
      return launch_nvfp4_rows(args);
    case Compute::kI8:
      break;  // refused
  }
}

void launch_columns(const ProductArgs& args) {
  args.compute == Compute::kF32 ? launch_product("linear_backward_", args) : launch_mma_columns(args);
}

void launch_column_sums(const float* a, const float* b, int64_t rows, int64_t cols, const float* norm,
                        float* out) {
  using namespace column_sums_block;
  const int64_t chunks = ceil_div(rows, column_sums_block::kChunk);
  const Scratch partial(chunks * cols * sizeof(float));
  launch("linear", "column_sums_f32", Grid{ceil_div(cols, kWidth) * chunks}, Threads{kWidth, kHeight}, 0, a,
         b, rows, cols, partial.as<float>());
  add_column_sums(partial.as<const float>(), chunks, cols, norm, out);
}

}  // namespace spark::cuda
