// nvfp4_rows.cc: launchers that round rows to NVFP4 for products.
#include "backend/cuda/quantize/nvfp4_rows.h"

#include "backend/cuda/gemm/cublaslt.h"
#include "backend/cuda/gemm/fp4_ways.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"
#include "kernels/quantize/blocks.h"

namespace spark::cuda {

using nvfp4_activation_block::kThreads;

Nvfp4Form nvfp4_form(int64_t rows, int64_t cols) {
  // So few are multiplied in bf16: reading the weight is all that costs time.
  if (rows <= linear_few_mma_block::kTokens) return Nvfp4Form::kBF16;
  const Fp4Ways ways = allowed_fp4_ways();
  return ways.takes_own(cols) || ways.takes_cublaslt(cols) ? Nvfp4Form::kCodes : Nvfp4Form::kBF16;
}

size_t nvfp4_bytes(Nvfp4Form form, int64_t rows, int64_t cols) {
  if (form == Nvfp4Form::kBF16) return rows * padded_depth(cols) * sizeof(uint16_t);
  return rows * (padded_depth(cols / 4) * sizeof(uint16_t) + sizeof(float) + cols / kNvfp4Block);
}

void check_nvfp4_memory(const void* memory) {
  if (is_blas_aligned(memory)) return;
  throw Error("ERR_ARGUMENT", "rounded rows must begin on a multiple of 16 bytes");
}

Nvfp4Rows nvfp4_rows_in(void* memory, Nvfp4Form form, int64_t rows, int64_t cols) {
  auto* codes = static_cast<uint16_t*>(memory);
  if (form == Nvfp4Form::kBF16) return {rows, cols, codes, nullptr, nullptr};
  auto* factors = reinterpret_cast<float*>(codes + rows * padded_depth(cols / 4));
  return {rows, cols, codes, reinterpret_cast<uint8_t*>(factors + rows), factors};
}

Nvfp4Activation::Nvfp4Activation(Nvfp4Form form, const float* x, int64_t rows, int64_t cols, float scale,
                                 void* memory) {
  if (!memory) memory = own_.emplace(nvfp4_bytes(form, rows, cols)).as<void>();
  rows_ = nvfp4_rows_in(memory, form, rows, cols);
  launch("nvfp4_activation", form == Nvfp4Form::kCodes ? "nvfp4_activation_codes" : "nvfp4_activation_bf16",
         Grid{rows}, Threads{kThreads}, 0, x, rows_, scale);
}

void decode_nvfp4(const Nvfp4Rows& rows, uint16_t* to) {
  launch("nvfp4_activation", "nvfp4_activation_decode", Grid{rows.rows}, Threads{kThreads}, 0, rows, to);
}

}  // namespace spark::cuda
