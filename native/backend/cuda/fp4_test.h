// fp4_test.h: whether FP4 tensor cores compute what the CPU does. Their instructions and scale layouts could
// not be tried on every GPU, so each way is tested before it is used.
#pragma once

#include <string>

#include "backend/cuda/fp4_product.h"

namespace spark::cuda {

// The ways whose product of a small problem agrees with the CPU's on the current device; none where
// DGX_SPARK_NVFP4=0. The first call of a process tests them and waits for the device.
Fp4Ways tested_fp4_ways();

// What was found wrong with a device and what happens instead, in words; "" when there is nothing to say.
std::string fp4_problem(int ordinal);

}  // namespace spark::cuda
