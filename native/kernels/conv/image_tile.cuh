// image_tile.cuh: stores of the tiles of tiles.cuh as images with their channels last.
#pragma once

#include "kernels/conv/conv.cuh"
#include "kernels/gemm/bytes.cuh"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

// Sixteen filters of a position, bytes in numbers of 32 bits whose lines are `pitch` apart.
__device__ void store_sixteen(uint8_t* to, const uint32_t* from, int pitch) {
  Bytes<16> sixteen;
#pragma unroll
  for (int i = 0; i < 16; ++i) sixteen.set(i, static_cast<uint8_t>(from[i * pitch]));
  *reinterpret_cast<Bytes<16>*>(to) = sixteen;
}

// Stores half of the rows of a tile as an image, from row and col on: store(at, line) takes kRun filters of a
// position from `line` of shared memory to element `at` of the image, and a neighbouring thread the next
// ones, a sector together.
template <int kRun, int kTile, typename Value, typename Store>
__device__ void store_image(const ForwardPass& pass, int64_t row, int64_t col, const Value* half,
                            const Store& store) {
  __syncthreads();
  const int64_t filters = pass.args.shape.filters;
#pragma unroll 1
  for (int i = threadIdx.x; i < kWarpRows<kTile> / kRun * kTile; i += kThreads<kTile>) {
    const int line = i / (2 * kTile) * 2 * kRun + i % 2 * kRun, column = i / 2 % kTile;
    if (row + line >= pass.filters || col + column >= pass.cols()) continue;
    store((col + column) * filters + int64_t{pass.group} * pass.filters + row + line,
          half + line * kPitch<kTile> + column);
  }
}

}  // namespace
}  // namespace spark
