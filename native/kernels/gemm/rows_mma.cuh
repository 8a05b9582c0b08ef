// rows_mma.cuh: the products of linear.cu on tensor cores, sums[M,N] = a[M,K]·w[N,K]ᵀ (+ a2[M,R]·b2[N,R]ᵀ),
// with operands rounded to bf16 and f32 sums. linear_mma_<dtype> takes the rows of the weight as lines along
// K, linear_mma_backward_<dtype> its columns; linear_mma_half_… round to f16. Tiles of 128 x 128 (tiles.cuh)
// in three stages: weights that are not stored so are decoded on their way. K rises in steps of 16 whatever
// M, N and the place of an element. Reference: native/backend/cpu/gemm/product.cc
#pragma once

#include "kernels/gemm/blocks.h"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

using linear_mma_block::kTile;
static_assert(kThreads<kTile> == linear_mma_block::kThreads);

// Scales of a weight's rows stand outside of its codes.
template <typename Codes, bool kRows>
__device__ void scale(const ProductMmaArgs& args, int64_t col, Sums<kTile>& sums) {
  const float tensor_scale = Codes::tensor_scale(args.w);
  const int64_t first = col + threadIdx.x / 32 / 2 * kWarpCols + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kColBlocks * 2; ++i) {
    const int64_t n = min(first + i / 2 * 8 + i % 2, args.cols - 1);
    const float row_scale = kRows ? Codes::row_scale(args.w, n) : 1.0f;
    const float factor = row_scale * tensor_scale;
#pragma unroll
    for (int m = 0; m < kRowBlocks<kTile> * 2; ++m) sums[m / 2][i / 2][m % 2 * 2 + i % 2] *= factor;
  }
}

template <typename Format, bool kRows, typename Number = BF16>
__device__ void product(const ProductMmaArgs& args) {
  using Weights = Codes<Format, Number>;
  __shared__ Stages<3, kTile> stages;
  const auto [row, col] = corner<kTile>(blockIdx.x, args.rows, args.cols);
  const PairStep<Number> step;
  Sums<kTile> sums = {};
  add_segment(stages, PackedRows<kTile>{args.a, args.rows, args.depth},
              WeightLines<Weights, kRows, kTile>{args.w}, row, col, step, sums);
  scale<Weights, kRows>(args, col, sums);
  add_segment(stages, PackedRows<kTile>{args.a2, args.rows, args.depth2},
              PackedRows<kTile>{args.b2, args.cols, args.depth2}, row, col, step, sums);
  store_tile<kTile>(args.rows, args.cols, row, col, sums, stages,
                    [&](int64_t m, int64_t n, float sum) { store(args.epilogue, m, n, sum); });
}

}  // namespace
}  // namespace spark

// linear_mma_<dtype> and linear_mma_backward_<dtype>.
#define SPARK_ROWS_MMA(dtype, Format)                                                \
  extern "C" __global__ void __launch_bounds__(spark::linear_mma_block::kThreads, 2) \
      linear_mma_##dtype(spark::ProductMmaArgs args) {                               \
    spark::product<Format, true>(args);                                              \
  }                                                                                  \
  extern "C" __global__ void __launch_bounds__(spark::linear_mma_block::kThreads, 2) \
      linear_mma_backward_##dtype(spark::ProductMmaArgs args) {                      \
    spark::product<Format, false>(args);                                             \
  }
