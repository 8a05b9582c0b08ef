// linear.cc: launchers of linear layers.
#include <algorithm>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/gemm/fp4_product.h"
#include "backend/cuda/gemm/product.h"
#include "backend/cuda/quantize/nvfp4_rows.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"
#include "kernels/ops/blocks.h"

namespace spark::cuda {

void linear(const LinearArgs& args) {
  const bool halves = args.x_dtype != FloatType::kF32 || args.takes_rounded;
  if (halves && !is_blas_aligned(args.x)) {
    throw Error("ERR_ARGUMENT", "x in 16 bits must begin on a multiple of 16 bytes");
  }
  check_nvfp4_memory(args.x_rounded);
  check_nvfp4_memory(args.y_rounded);
  const Lines x = halves ? Lines{} : rows_of(static_cast<const float*>(args.x), args.weight.cols);
  ProductArgs product = with_rows(args.tokens, x, args.weight, static_cast<float*>(args.y));
  if (halves) {
    (args.takes_rounded ? product.rounded_a : product.packed_a) = static_cast<const uint16_t*>(args.x);
  }
  product.epilogue.out_dtype = args.y_dtype;
  product.epilogue.col_factor = args.row_scale;
  product.epilogue.mask = args.gate;
  product.epilogue.bias = args.bias;
  product.epilogue.activation = args.activation;
  product.epilogue.residual = args.residual;
  product.compute = args.compute;
  product.a_scale = args.x_scale;
  product.y_rounded = args.y_rounded;
  product.y_scale = args.y_scale;
  args.x_rounded ? launch_nvfp4_rows(product, args.x_rounded) : launch_rows(product);
}

// A thread has several rows as soon as kFull blocks have one for each.
void gather_rows(const GatherRowsArgs& args) {
  using namespace view_block;
  const int64_t cols = args.weight.cols, full = cols ? ceil_div(kFull * kThreads, cols) : 1;
  const int64_t groups = std::min(args.count, std::max(full, ceil_div(args.count, kElements)));
  launch("gather_rows", std::string("gather_rows_") + dtype_name(args.weight.dtype),
         Grid{ceil_div(groups * cols, kThreads)}, Threads{kThreads}, 0, args, groups);
}

void linear_backward(const LinearBackwardArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows;
  if (args.dx) {
    ProductArgs dx = with_columns(args.tokens, rows_of(args.dy, out), args.weight, args.dx);
    dx.compute = args.compute;
    launch_columns(dx);
  }
  if (args.dweight) {
    const Weight x = as_weight(args.x, args.tokens, in);
    ProductArgs dweight = with_columns(out, columns_of(args.dy, out), x, args.dweight);
    dweight.compute = args.compute;
    launch_columns(dweight);
  }
  if (args.dbias) launch_column_sums(args.dy, nullptr, args.tokens, out, nullptr, args.dbias);
}

}  // namespace spark::cuda
