// dot_self_test.h: a comparison of dot-product kernels with plain sums, for machines that do not keep what
// their feature bits promise.
#pragma once

#include "backend/cpu/gemm/dot_kernels.h"

namespace spark::cpu {

// Whether those that are not null agree, on bf16 around 1, any bytes, and blocks of 4 and 8 bits.
bool passes_self_test(const DotKernels& gemm);

}  // namespace spark::cpu
