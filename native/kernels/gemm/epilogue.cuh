// epilogue.cuh: the epilogue of an accumulator (struct Epilogue of product_args.h).
#pragma once

#include "kernels/gemm/activation.cuh"
#include "kernels/gemm/product_args.h"
#include "kernels/quantize/nvfp4_store.cuh"
#include "kernels/store.cuh"

namespace spark {

// What is stored of a sum in `out`, to which nothing is added.
__device__ inline float finished(const Epilogue& to, int64_t m, int64_t n, int64_t at, float sum) {
  if (to.copy) to.copy[at] = to.copy_add ? to.copy[at] + sum : sum;
  float value = sum * to.factor;
  if (to.row_factor) value *= to.row_factor[m];
  if (to.col_factor) value *= to.col_factor[n] + to.col_shift;
  if (to.mask) value *= to.mask[at];
  if (to.bias) value += to.bias[n];
  if (to.activation != Activation::kNone) value = activated(to.activation, value);
  if (to.residual) value += to.residual[at];
  return value;
}

__device__ inline void store(const Epilogue& to, int64_t m, int64_t n, float sum) {
  const int64_t at = m * to.row_stride + n * to.col_stride;
  const float value = finished(to, m, n, at, sum);
  store_as(to.out_dtype, to.out, at, to.add ? to.out[at] + value : value);
}

// As store(), in f32 unless `out` is null, and in rows that are rounded for products. The lanes of a warp
// have neighbouring columns of a row.
__device__ inline void store_rounded(const Epilogue& to, const RoundedTarget& target, int64_t m, int64_t n,
                                     float sum) {
  const int64_t at = m * to.row_stride + n * to.col_stride;
  const float value = finished(to, m, n, at, sum);
  if (to.out) to.out[at] = value;
  const Nvfp4Store rows{target.rows, m, target.scale};
  rows.store_code(n, value);
  if (n < 8) rows.finish(n, 8);
}

}  // namespace spark
