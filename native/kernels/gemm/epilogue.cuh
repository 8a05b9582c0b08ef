// epilogue.cuh: the epilogue of an accumulator (struct Epilogue of product_args.h).
#pragma once

#include "kernels/gemm/activation.cuh"
#include "kernels/gemm/product_args.h"
#include "kernels/store.cuh"

namespace spark {

__device__ inline void store(const Epilogue& to, int64_t m, int64_t n, float sum) {
  const int64_t at = m * to.row_stride + n * to.col_stride;
  if (to.copy) to.copy[at] = to.copy_add ? to.copy[at] + sum : sum;
  float value = sum * to.factor;
  if (to.row_factor) value *= to.row_factor[m];
  if (to.col_factor) value *= to.col_factor[n] + to.col_shift;
  if (to.mask) value *= to.mask[at];
  if (to.bias) value += to.bias[n];
  if (to.activation != Activation::kNone) value = activated(to.activation, value);
  if (to.residual) value += to.residual[at];
  store_as(to.out_dtype, to.out, at, to.add ? to.out[at] + value : value);
}

}  // namespace spark
