// product_mma.h: GEMM on tensor cores (native/kernels/gemm/linear_mma.cu, linear_batch_mma.cu,
// linear_few_mma.cu) with operands in bf16 or f16 and f32 accumulators.
#pragma once

#include "backend/cuda/runtime/memory.h"
#include "kernels/gemm/product_args.h"

namespace spark::cuda {

// bf16 or f16: what the operands of a product are rounded to.
DType number_of(Compute compute);

// Lines along K in 16-bit numbers, as ProductArgs::packed_a takes them. They may go out of scope when the
// last kernel that reads them is enqueued.
class Packed {
 public:
  // k_factor [depth] may be null.
  Packed(DType number, const Lines& lines, int64_t count, int64_t depth, const float* k_factor = nullptr);
  uint16_t* data() const { return memory_.as<uint16_t>(); }

 private:
  Scratch memory_;
};

// Refuses a weight with too many rows or columns for 32 bits, in which kernels on tensor cores count them,
// except those for few rows.
void check_weight(const Weight& weight);

// Whether cuBLASLt may store the sums where the epilogue wants them: as they are, row by row, aligned.
bool takes_sums(const ProductMmaArgs& args);

// Second segment (of `number`) and epilogue, where the sum of parts[count, rows, cols], in their order, is
// what the first segment comes to, but for factors[rows] and the tensor scale of the weight, by which both
// it is multiplied unless factors are null. Results go to `target`, too, unless that is null.
void launch_epilogue(DType number, const ProductMmaArgs& args, const float* parts, int64_t count = 1,
                     const float* factors = nullptr, const RoundedTarget* target = nullptr);

// The product of up to 16 rows in bf16, packed_a, and a weight of NVFP4: results go to `target` in bf16, and
// to epilogue.out unless that is null.
void launch_few_rounded(const ProductArgs& args, const RoundedTarget& target);

// As launch_rows and launch_columns of product.h.
void launch_mma_rows(const ProductArgs& args);
void launch_mma_columns(const ProductArgs& args);

}  // namespace spark::cuda
