// limits.h: sizes that kernels count in 32 bits.
#pragma once

#include <cstdint>

#include "core/error.h"

namespace spark::cuda {

constexpr int64_t kEndOfSizes = int64_t{1} << 30;

inline void check_size(const char* operation, const char* what, int64_t size) {
  if (size > -kEndOfSizes && size < kEndOfSizes) return;
  throw Error("ERR_SHAPE", message(operation, " on the cuda backend takes sizes below ", kEndOfSizes, "; ",
                                   what, " come to ", size, ". Use the cpu backend"));
}

}  // namespace spark::cuda
