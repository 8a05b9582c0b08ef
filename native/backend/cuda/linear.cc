#include "backend/cuda/cuda.h"
#include "backend/cuda/product.h"
#include "core/error.h"

namespace spark::cuda {

void linear(const LinearArgs& args) {
  if (args.row_scale || args.residual || args.activation != Activation::kNone) {
    throw Error("ERR_UNSUPPORTED",
                "linear: the cuda backend has no kernel with a row scale, an activation or a residual");
  }
  ProductArgs product = with_rows(args.tokens, rows_of(args.x, args.weight.cols), args.weight, args.y);
  product.epilogue.bias = args.bias;
  launch_rows(product);
}

void linear_backward(const LinearBackwardArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows;
  if (args.dx) launch_columns(with_columns(args.tokens, rows_of(args.dy, out), args.weight, args.dx));
  if (args.dweight) {
    const Weight x = as_weight(args.x, args.tokens, in);
    launch_columns(with_columns(out, columns_of(args.dy, out), x, args.dweight));
  }
  if (args.dbias) launch_column_sums(args.dy, nullptr, args.tokens, out, nullptr, args.dbias);
}

}  // namespace spark::cuda
