// pack.cu: lines along K of an f32 operand as bf16 for the tensor cores (struct PackArgs of product_args.h),
// with its mask and factors. pack_rows_bf16: K is contiguous, a thread packs eight. pack_columns_bf16: the
// lines are, and a block turns a tile of 32 x 32.
#include "kernels/lines.cuh"
#include "kernels/pairs.cuh"

extern "C" __global__ void pack_rows_bf16(spark::PackArgs args) {
  const int64_t runs = spark::padded_depth(args.depth) / 8;
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.count * runs) return;
  const int64_t line = at / runs, k = at % runs * 8, start = line * args.lines.line_stride + k;
  spark::Bytes<32> data;
  data.load(args.lines.data + start, (args.depth - k) * 4);
  float values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] = spark::bits_float(data.word(i)) * args.lines.factor;
    if (k + i >= args.depth) continue;
    if (args.lines.mask) values[i] *= args.lines.mask[start + i];
    if (args.lines.k_scale) values[i] *= args.lines.k_scale[k + i] + args.lines.k_shift;
    if (args.k_factor) values[i] *= args.k_factor[k + i];
  }
  spark::Eight packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) packed.pairs[i] = spark::round_pair(values[2 * i], values[2 * i + 1]);
  reinterpret_cast<spark::Eight*>(args.out)[at] = packed;
}

extern "C" __global__ void pack_columns_bf16(spark::PackArgs args) {
  constexpr int kSide = 32, kHeight = 8;  // a block has 32 x 8 threads
  __shared__ float tile[kSide][kSide + 1];
  const int64_t depth = spark::padded_depth(args.depth), across = depth / kSide;
  const int64_t line = blockIdx.x / across * kSide, k = blockIdx.x % across * kSide;
  const spark::FloatLines source{args.lines};
  for (int i = threadIdx.y; i < kSide; i += kHeight) {
    const int64_t at_line = line + threadIdx.x, at_k = k + i;
    const bool inside = at_line < args.count && at_k < args.depth;
    const float factor = inside && args.k_factor ? args.k_factor[at_k] : 1.0f;
    tile[i][threadIdx.x] = inside ? source.element(at_line, at_k) * factor : 0.0f;
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kSide; i += kHeight) {
    if (line + i >= args.count) continue;
    const float value = tile[threadIdx.x][i];
    args.out[(line + i) * depth + k + threadIdx.x] = static_cast<uint16_t>(spark::round_pair(value, value));
  }
}
