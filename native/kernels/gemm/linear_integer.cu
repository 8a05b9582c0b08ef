// linear_integer.cu: y[t, o] = Σ_i (x[t, i] − x_zero[t]) · (w[o, i] − w_zero[o]) of bytes, exact in int32 and
// modulo 2^32 beyond it, from unpacked bytes. One block of 256 threads per tile of 32 x 32, 2 x 2 sums per
// thread. Reference: native/backend/cpu/gemm/linear_integer.cc
#include "backend/backend.h"
#include "kernels/gemm/blocks.h"

namespace spark {
namespace {

using linear_integer_block::kThreads;
using linear_integer_block::kTile;
constexpr int kDepth = 32, kSide = 16;
static_assert(kSide * kSide == kThreads);

// Unsigned, because sums wrap.
__device__ uint32_t number(const void* bytes, bool is_signed, int64_t at) {
  return is_signed ? static_cast<uint32_t>(static_cast<const int8_t*>(bytes)[at])
                   : static_cast<const uint8_t*>(bytes)[at];
}

// Lines [line, line + kTile) less their zero points; zeros outside.
__device__ void load(const void* bytes, bool is_signed, const int32_t* zero, int64_t line, int64_t lines,
                     int64_t k, int64_t depth, uint32_t (&tile)[kTile][kDepth + 1]) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    const int64_t at_line = line + i / kDepth, at_k = k + i % kDepth;
    uint32_t value = 0;
    if (at_line < lines && at_k < depth) {
      value = number(bytes, is_signed, at_line * depth + at_k) - (zero ? zero[at_line] : 0);
    }
    tile[i / kDepth][i % kDepth] = value;
  }
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::linear_integer_block::kThreads)
    linear_integer(spark::LinearIntegerArgs args) {
  using namespace spark;
  __shared__ uint32_t left[kTile][kDepth + 1], right[kTile][kDepth + 1];
  const int64_t row_tiles = (args.tokens + kTile - 1) / kTile;
  const int64_t row = blockIdx.x % row_tiles * kTile, col = blockIdx.x / row_tiles * kTile;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  uint32_t sums[2][2] = {};
  for (int64_t k = 0; k < args.cols; k += kDepth) {
    __syncthreads();  // the last tiles have been used
    load(args.x, args.x_signed, args.x_zero, row, args.tokens, k, args.cols, left);
    load(args.w, args.w_signed, args.w_zero, col, args.rows, k, args.cols, right);
    __syncthreads();
    for (int j = 0; j < kDepth; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[i / 2][i % 2] += left[y + i / 2 * kSide][j] * right[x + i % 2 * kSide][j];
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t t = row + y + i / 2 * kSide, o = col + x + i % 2 * kSide;
    if (t < args.tokens && o < args.rows)
      static_cast<int32_t*>(args.result.y)[t * args.rows + o] = static_cast<int32_t>(sums[i / 2][i % 2]);
  }
}
