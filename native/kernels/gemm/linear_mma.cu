// linear_mma.cu: the kernels of rows_mma.cuh for weights in numbers of their own.
#include "kernels/gemm/rows_mma.cuh"

SPARK_FOR_EACH_WEIGHT(SPARK_ROWS_MMA)

#define SPARK_DEFINE(dtype, Format)                                                  \
  extern "C" __global__ void __launch_bounds__(spark::linear_mma_block::kThreads, 2) \
      linear_mma_half_##dtype(spark::ProductMmaArgs args) {                          \
    spark::product<Format, true, spark::F16>(args);                                  \
  }                                                                                  \
  extern "C" __global__ void __launch_bounds__(spark::linear_mma_block::kThreads, 2) \
      linear_mma_half_backward_##dtype(spark::ProductMmaArgs args) {                 \
    spark::product<Format, false, spark::F16>(args);                                 \
  }
SPARK_DEFINE(f32, spark::Plain<spark::F32>)
SPARK_DEFINE(f16, spark::Plain<spark::F16>)
