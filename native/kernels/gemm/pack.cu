// pack.cu: lines along K of an f32 operand as bf16 or f16 for the tensor cores (struct PackArgs of
// product_args.h), with its mask and factors. pack_rows_<number>: K is contiguous, a thread packs eight.
// pack_columns_<number>: the lines are, and a block transposes a tile of 32 x 32.
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/lines.cuh"
#include "kernels/gemm/pairs.cuh"

namespace spark {
namespace {

template <typename Number>
__device__ void pack_rows(const PackArgs& args) {
  const int64_t runs = padded_depth(args.depth) / 8;
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= args.count * runs) return;
  const int64_t line = at / runs, k = at % runs * 8, start = line * args.lines.line_stride + k;
  EightFloats values;
  values.load(args.lines.data + start, args.depth - k);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values.at[i] *= args.lines.factor;
    if (k + i >= args.depth) continue;
    if (args.lines.mask) values.at[i] *= args.lines.mask[start + i];
    if (args.lines.k_scale) values.at[i] *= args.lines.k_scale[k + i] + args.lines.k_shift;
    if (args.k_factor) values.at[i] *= args.k_factor[k + i];
  }
  reinterpret_cast<Eight*>(args.out)[at] = values.rounded<Number>();
}

template <typename Number>
__device__ void pack_columns(const PackArgs& args) {
  using namespace pack_columns_block;  // kSide x kHeight threads
  __shared__ float tile[kSide][kSide + 1];
  const int64_t depth = padded_depth(args.depth), across = depth / kSide;
  const int64_t line = blockIdx.x / across * kSide, k = blockIdx.x % across * kSide;
  const FloatLines source{args.lines};
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
    args.out[(line + i) * depth + k + threadIdx.x] = static_cast<uint16_t>(round_pair<Number>(value, value));
  }
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(number, Number)                                       \
  extern "C" __global__ void pack_rows_##number(spark::PackArgs args) {    \
    spark::pack_rows<spark::Number>(args);                                 \
  }                                                                        \
  extern "C" __global__ void pack_columns_##number(spark::PackArgs args) { \
    spark::pack_columns<spark::Number>(args);                              \
  }
SPARK_DEFINE(bf16, BF16)
SPARK_DEFINE(f16, F16)
