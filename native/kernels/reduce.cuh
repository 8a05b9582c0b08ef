// reduce.cuh: sums and maxima over the threads of a block, always in the same order. Every thread gets the
// result. Trap: all threads of the block must call; threads beyond the data bring the neutral element.
#pragma once

namespace spark {

constexpr int kWarp = 32;

template <typename T, typename Combine>
__device__ T block_reduce(T value, T neutral, Combine combine) {
  __shared__ T warps[kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  }
  __syncthreads();  // the result of an earlier call may still be read
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = neutral;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) {
    result = combine(result, warps[warp]);
  }
  return result;
}

template <typename T>
__device__ T block_sum(T value) {
  return block_reduce(value, T(0), [](T a, T b) { return a + b; });
}

__device__ inline float block_max(float value) {
  return block_reduce(value, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace spark
