// tensor.h: matrix products on tensor cores (native/kernels/tensor.cu, tensor_few.cu): operands in bf16, sums
// in f32.
#pragma once

#include "backend/cuda/memory.h"
#include "kernels/product_args.h"

namespace spark::cuda {

// Lines along K in bf16, as ProductArgs::packed_a takes them. They may go out of scope when the last kernel
// that reads them is enqueued.
class Packed {
 public:
  // k_factor [depth] may be null.
  Packed(const Lines& lines, int64_t count, int64_t depth, const float* k_factor = nullptr);
  uint16_t* data() const { return memory_.as<uint16_t>(); }

 private:
  Scratch memory_;
};

// Whether the epilogue stores the sums as they are, row by row.
bool is_plain(const TensorArgs& args);

// Second segment and epilogue, where sums[rows, cols] are what the first segment comes to.
void launch_finish(const TensorArgs& args, const float* sums);

// As launch_rows and launch_columns of product.h.
void launch_tensor_rows(const ProductArgs& args);
void launch_tensor_columns(const ProductArgs& args);

}  // namespace spark::cuda
