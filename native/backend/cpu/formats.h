// formats.h: refuses formats that an operation does not take.
#pragma once

#include "core/dtype.h"
#include "core/error.h"

namespace spark::cpu {

inline void check_format(const char* op, DType dtype) {
  if (dtype == DType::kNVFP4 || dtype == DType::kI8) {
    throw Error("ERR_DTYPE", message(op, " does not take ", dtype_name(dtype)));
  }
}

inline void check_wide_format(const char* op, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    throw Error("ERR_DTYPE", message(op, " takes f32, f16 or bf16, not ", dtype_name(dtype)));
  }
}

}  // namespace spark::cpu
