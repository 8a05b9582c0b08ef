// fp4_product.h: products of an NVFP4 weight with an activation that is rounded to NVFP4, too
// (Compute::kNVFP4): on FP4 tensor cores where they were found to work, else on those for bf16, which
// multiply the same numbers.
#pragma once

#include "backend/cuda/gemm/fp4_ways.h"
#include "kernels/gemm/product_args.h"

namespace spark::cuda {

// As launch_rows of product.h. `a` is a matrix without factors, unless there is rounded_a; rows that are
// rounded here are left in `rounded` unless that is null. packed_a plays no part.
void launch_nvfp4_rows(const ProductArgs& args, uint16_t* rounded = nullptr);

// The product of rows in codes by one of `ways`, the faster one where there are two, with results in `target`
// unless that is null; false when none has such a product. There are rows, columns and depth. y_rounded plays
// no part.
bool launch_fp4(const ProductArgs& args, const Nvfp4Rows& x, Fp4Ways ways,
                const RoundedTarget* target = nullptr);

}  // namespace spark::cuda
