#include "backend/cuda/product.h"

#include <string>

#include "backend/cuda/fp4_product.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/tensor.h"

namespace spark::cuda {
namespace {

constexpr int kTile = 64, kThreads = 256;  // linear.cu
constexpr int kWidth = 32, kHeight = 8;    // a block of column_sums
constexpr int64_t kChunk = 256;            // rows of one block of column_sums

void launch_product(const char* kernel, const ProductArgs& args) {
  const Grid grid{ceil_div(args.rows, kTile) * ceil_div(args.cols, kTile)};
  launch("linear", std::string(kernel) + dtype_name(args.w.dtype), grid, Threads{kThreads}, 0, args);
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
      return launch_tensor_rows(args);
    case Compute::kNVFP4:
      return launch_nvfp4_rows(args);
  }
}

void launch_columns(const ProductArgs& args) {
  args.compute == Compute::kBF16 ? launch_tensor_columns(args) : launch_product("linear_backward_", args);
}

void launch_column_sums(const float* a, const float* b, int64_t rows, int64_t cols, const float* norm,
                        float* out) {
  const int64_t chunks = ceil_div(rows, kChunk);
  const Scratch partial(chunks * cols * sizeof(float));
  launch("linear", "column_sums_f32", Grid{ceil_div(cols, kWidth) * chunks}, Threads{kWidth, kHeight}, 0, a,
         b, rows, cols, partial.as<float>());
  launch("linear", "column_sums_finish_f32", Grid{ceil_div(cols, kThreads)}, Threads{kThreads}, 0,
         partial.as<const float>(), chunks, cols, norm, out);
}

}  // namespace spark::cuda
