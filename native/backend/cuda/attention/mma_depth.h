// mma_depth.h: the kernels of attention on tensor cores that take rows of a length.
#pragma once

#include <cstdint>

namespace spark::cuda {

// The end of the name of the kernel for rows of up to attention_mma_block::kMaxDepth elements.
inline const char* mma_depth(int64_t longest) {
  return longest <= 64 ? "_64" : longest <= 128 ? "_128" : "_256";
}

}  // namespace spark::cuda
