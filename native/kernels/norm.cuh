// norm.cuh: what a gain divides by.
#pragma once

namespace spark {

// A NaN stays one; fmaxf would hide it.
__device__ inline float clamped(float norm) { return norm < 1e-12f ? 1e-12f : norm; }

}  // namespace spark
