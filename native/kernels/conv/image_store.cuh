// image_store.cuh: stores of images in 16 bits with their channels last, from lines of filters in shared
// memory.
#pragma once

#include "kernels/conv/conv.cuh"
#include "kernels/gemm/pairs.cuh"

namespace spark {
namespace {

// Eight filters of a position, whose lines are `pitch` apart.
template <typename Number>
__device__ void store_eight(uint16_t* to, const float* from, int pitch) {
  Eight eight;
  for (int j = 0; j < 4; ++j) {
    eight.pairs[j] = round_pair<Number>(from[2 * j * pitch], from[(2 * j + 1) * pitch]);
  }
  *reinterpret_cast<Eight*>(to) = eight;
}

}  // namespace
}  // namespace spark
