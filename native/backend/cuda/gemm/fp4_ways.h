// fp4_ways.h: which products of operands in NVFP4 a device forms on FP4 tensor cores.
#pragma once

#include <cstdint>

namespace spark::cuda {

// Ways to form such a product on FP4 tensor cores: linear_fp4_mma.cu, and cuBLASLt.
struct Fp4Ways {
  bool own = false, cublaslt = false;

  // Whether a way has products along `depth`.
  bool takes_own(int64_t depth) const { return own && depth % 64 == 0; }
  bool takes_cublaslt(int64_t depth) const { return cublaslt && depth % 32 == 0; }
};

// Lets products on a device go by `ways`. The first answer of a process stands, so that what products are
// formed by does not change between calls.
void allow_fp4(int ordinal, Fp4Ways ways);

// What the current device may use; nothing until it was allowed.
Fp4Ways allowed_fp4_ways();

}  // namespace spark::cuda
