// cublaslt.h: cuBLASLt, resolved at first use. The kernels of this addon do not need it; plain matrix
// products use it where it is faster. DGX_SPARK_CUBLASLT=0 turns it off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.h"

namespace spark::cuda {

class Device;

// What is known of cuBLASLt without using it.
struct CublasLtReport {
  std::string reason;                  // why it cannot be used; empty when it can
  std::optional<std::string> library;  // the file that was opened
  std::optional<size_t> version;       // 130100 for 13.1.0
};

// Opens the library, which takes long the first time.
CublasLtReport query_cublaslt();

// out[m, n] = Σ_k a[m, k] · w(n, k), sums in f32; w(n, k) is w[n, k], or w[k, n] unless w_rows. Strides are
// elements between rows. Addresses and strides are multiples of 16 bytes.
struct BlasProduct {
  DType dtype;  // of both operands: bf16, f16, or nvfp4 with w_rows
  int64_t rows, cols, depth;
  const void* a;
  int64_t a_stride;
  const void* w;
  int64_t w_stride;
  bool w_rows;
  float* out;  // [rows, cols]
  // nvfp4 only: block scales in the order of swizzle_scales.
  const uint8_t* a_scales = nullptr;
  const uint8_t* w_scales = nullptr;
};

// Opens the library and makes a handle for the device, which must be current, unless it has one. Takes long;
// failures leave cuBLASLt unused.
void prepare_cublaslt(Device& device);

// Whether cuBLASLt may read and write matrices that begin at `address`.
bool is_blas_aligned(const void* address);

// Enqueues the product on the current device; false when cuBLASLt was not prepared, has no algorithm for it,
// or an operand is not aligned.
bool cublaslt_product(const BlasProduct& product);

}  // namespace spark::cuda
