// tensor.h: matrix products on tensor cores (native/kernels/tensor.cu, tensor_few.cu): operands in bf16, sums
// in f32.
#pragma once

#include "kernels/product_args.h"

namespace spark::cuda {

// As launch_rows and launch_columns of product.h.
void launch_tensor_rows(const ProductArgs& args);
void launch_tensor_columns(const ProductArgs& args);

}  // namespace spark::cuda
