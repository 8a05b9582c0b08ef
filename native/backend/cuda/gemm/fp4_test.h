// fp4_test.h: whether FP4 tensor cores compute what the CPU does. Their instructions and scale layouts could
// not be tried on every GPU, so each way is tested, in a process of its own, before any other uses it.
#pragma once

#include <optional>
#include <string>

#include "backend/cuda/gemm/fp4_ways.h"

namespace spark::cuda {

// Opens the device and forms a product in one way: "" when it equals the CPU's, else what is wrong; nothing
// when the GPU or cuBLASLt has no such product. What it launches may ruin the context or never end. Throws
// what keeps it from an answer: ERR_NO_CUDA, ERR_OUT_OF_MEMORY, a device that does not open.
std::optional<std::string> test_fp4(int ordinal, Fp4Ways way);

}  // namespace spark::cuda
