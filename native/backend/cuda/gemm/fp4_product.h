// fp4_product.h: products of an NVFP4 weight with an activation that is rounded to NVFP4, too
// (Compute::kNVFP4): on FP4 tensor cores where they were found to work, else on those for bf16, which
// multiply the same numbers.
#pragma once

#include "kernels/gemm/product_args.h"

namespace spark::cuda {

// Ways to form such a product on FP4 tensor cores: linear_fp4_mma.cu, and cuBLASLt.
struct Fp4Ways {
  bool own = false, cublaslt = false;
};

// As launch_rows of product.h. `a` is a matrix without factors.
void launch_nvfp4_rows(const ProductArgs& args);

// The same by one of `ways`, the faster one where there are two; false when none has such a product. There
// are rows, columns and depth.
bool launch_fp4(const ProductArgs& args, Fp4Ways ways);

}  // namespace spark::cuda
