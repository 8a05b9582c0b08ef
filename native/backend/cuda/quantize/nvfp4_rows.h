// nvfp4_rows.h: rows that are rounded to NVFP4 for products, and the form in which they lie in memory.
#pragma once

#include <optional>

#include "backend/cuda/runtime/memory.h"
#include "kernels/gemm/product_args.h"

namespace spark::cuda {

// Those of struct Nvfp4Rows.
enum class Nvfp4Form { kCodes, kBF16 };

// The form that products on the current device take of so many rows, whatever the weight.
Nvfp4Form nvfp4_form(int64_t rows, int64_t cols);

// Bytes of such rows.
size_t nvfp4_bytes(Nvfp4Form form, int64_t rows, int64_t cols);

// Refuses memory for rows that they cannot be copied from.
void check_nvfp4_memory(const void* memory);

// Rows in `memory`.
Nvfp4Rows nvfp4_rows_in(void* memory, Nvfp4Form form, int64_t rows, int64_t cols);

// x[rows, cols] in NVFP4 with a tensor scale (0: each row with its own), in `memory` or in some of its own,
// which may go out of scope when the last kernel that reads it is enqueued.
class Nvfp4Activation {
 public:
  Nvfp4Activation(Nvfp4Form form, const float* x, int64_t rows, int64_t cols, float scale = 0,
                  void* memory = nullptr);
  const Nvfp4Rows& rows() const { return rows_; }

 private:
  std::optional<Scratch> own_;
  Nvfp4Rows rows_;
};

// What rows in codes stand for, in bf16: [rows, padded_depth(cols)].
void decode_nvfp4(const Nvfp4Rows& rows, uint16_t* to);

}  // namespace spark::cuda
