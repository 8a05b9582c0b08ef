// fp4_product.h: products of an NVFP4 weight with an activation that is rounded to NVFP4, too
// (Compute::kNVFP4): on FP4 tensor cores where they were found to work, else on those for bf16, which
// multiply the same numbers.
#pragma once

#include <optional>

#include "backend/cuda/runtime/memory.h"
#include "kernels/gemm/product_args.h"

namespace spark::cuda {

// How rows in NVFP4 lie in memory: struct Nvfp4Rows.
enum class Nvfp4Form { kCodes, kBF16 };

// The form that products on the current device take of so many rows, whatever the weight.
Nvfp4Form nvfp4_form(int64_t rows, int64_t cols);

// Rows in `memory`.
Nvfp4Rows nvfp4_rows_in(void* memory, Nvfp4Form form, int64_t rows, int64_t cols);

// x[rows, cols] in NVFP4, in `memory` or in some of its own, which may go out of scope when the last kernel
// that reads it is enqueued.
class Nvfp4Activation {
 public:
  Nvfp4Activation(Nvfp4Form form, const float* x, int64_t rows, int64_t cols, void* memory = nullptr);
  const Nvfp4Rows& rows() const { return rows_; }

 private:
  std::optional<Scratch> own_;
  Nvfp4Rows rows_;
};

// Ways to form such a product on FP4 tensor cores: linear_fp4_mma.cu, and cuBLASLt.
struct Fp4Ways {
  bool own = false, cublaslt = false;
};

// As launch_rows of product.h. `a` is a matrix without factors, or packed_a has its rows in NVFP4, in
// nvfp4_form(); otherwise they are left in `rounded` unless that is null.
void launch_nvfp4_rows(const ProductArgs& args, uint16_t* rounded = nullptr);

// The product of rows in codes by one of `ways`, the faster one where there are two; false when none has such
// a product. There are rows, columns and depth.
bool launch_fp4(const ProductArgs& args, const Nvfp4Rows& x, Fp4Ways ways);

}  // namespace spark::cuda
