// swizzle.cu: block scales from rows to the tiles of cuBLASLt's block-scaled products, or back. One thread
// per byte of the tiles, those beyond the matrix included. Reference: native/backend/cpu/quantize/swizzle.cc
#include "backend/backend.h"

extern "C" __global__ void swizzle_scales(spark::SwizzleScalesArgs args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, across = (args.cols + 3) / 4;
  const int64_t row = at / (across * 512) * 128 + at % 16 / 4 * 32 + at % 512 / 16;
  const int64_t col = at / 512 % across * 4 + at % 4;
  if (row / 128 >= (args.rows + 127) / 128) return;
  const bool inside = row < args.rows && col < args.cols;
  if (!args.inverse) {
    args.dst[at] = inside ? args.src[row * args.cols + col] : 0;
  } else if (inside) {
    args.dst[row * args.cols + col] = args.src[at];
  }
}
