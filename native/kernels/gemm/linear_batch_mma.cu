// linear_batch_mma.cu: the kernels of batch_mma.cuh for weights in numbers of their own.
#include "kernels/gemm/batch_mma.cuh"

SPARK_FOR_EACH_WEIGHT(SPARK_BATCH_MMA)

#define SPARK_DEFINE(dtype, Format)                                      \
  SPARK_BATCH_MMA_OF(linear_mma_half_32_##dtype, 32, Format, spark::F16) \
  SPARK_BATCH_MMA_OF(linear_mma_half_64_##dtype, 64, Format, spark::F16)
SPARK_DEFINE(f32, spark::Plain<spark::F32>)
SPARK_DEFINE(f16, spark::Plain<spark::F16>)
