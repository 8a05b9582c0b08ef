// formats.h: the formats that casts and quantizers have loops of their own for.
#pragma once

#include "core/dtype.h"
#include "core/error.h"

namespace spark::cpu {

// Whether elements of `dtype` are of one of the formats of tensors and checkpoints.
inline bool is_format(DType dtype) { return dtype <= DType::kF8E5M2; }

inline void check_wide_format(const char* op, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    throw Error("ERR_DTYPE", message(op, " takes f32, f16 or bf16, not ", dtype_name(dtype)));
  }
}

}  // namespace spark::cpu
