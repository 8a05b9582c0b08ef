// dtype.h: element types, by the lower-case names of the safetensors format. lib/core/dtype.ts mirrors this
// table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spark {

enum class DType : uint8_t { kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kNVFP4, kI8 };

inline const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "f8_e4m3";
    case DType::kF8E5M2:
      return "f8_e5m2";
    case DType::kNVFP4:
      return "nvfp4";
    case DType::kI8:
      return "i8";
  }
  return "?";
}

// Bits an element takes, block scales of NVFP4 not counted.
inline size_t dtype_bits(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8:
      return 8;
    case DType::kNVFP4:
      return 4;
  }
  return 0;
}

}  // namespace spark
