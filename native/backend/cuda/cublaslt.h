// cublaslt.h: cuBLASLt, resolved at first use. The kernels of this addon do not need it; plain matrix
// products may.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace spark::cuda {

// What is known of cuBLASLt without using it.
struct CublasLtReport {
  std::string reason;                  // why it cannot be used; empty when it can
  std::optional<std::string> library;  // the file that was opened
  std::optional<size_t> version;       // 130100 for 13.1.0
};

// Opens the library, which takes long the first time.
CublasLtReport query_cublaslt();

}  // namespace spark::cuda
