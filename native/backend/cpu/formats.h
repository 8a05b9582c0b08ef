// formats.h: from a DType known at run time to the format a template needs.
#pragma once

#include "core/dtype.h"
#include "core/error.h"
#include "core/float_formats.h"

namespace spark::cpu {

// Calls body(F32{}), body(F16{}) or body(BF16{}).
template <typename Body>
void with_wide_format(const char* op, DType dtype, Body body) {
  switch (dtype) {
    case DType::kF32:
      return body(F32{});
    case DType::kF16:
      return body(F16{});
    case DType::kBF16:
      return body(BF16{});
    default:
      throw Error("ERR_DTYPE", message(op, " takes f32, f16 or bf16, not ", dtype_name(dtype)));
  }
}

// The same with f8_e4m3 and f8_e5m2.
template <typename Body>
void with_format(const char* op, DType dtype, Body body) {
  switch (dtype) {
    case DType::kF8E4M3:
      return body(E4M3{});
    case DType::kF8E5M2:
      return body(E5M2{});
    case DType::kNVFP4:
      throw Error("ERR_DTYPE", message(op, " does not take nvfp4"));
    default:
      return with_wide_format(op, dtype, body);
  }
}

}  // namespace spark::cpu
