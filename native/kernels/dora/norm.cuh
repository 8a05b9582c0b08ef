// norm.cuh: the norm by which a gain divides.
#pragma once

#include "backend/dora_args.h"

namespace spark {

// A NaN stays one; fmaxf would hide it.
__device__ inline float clamped(float norm) { return norm < kSmallestNorm ? kSmallestNorm : norm; }

}  // namespace spark
