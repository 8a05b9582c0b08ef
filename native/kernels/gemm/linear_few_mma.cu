// linear_few_mma.cu: the kernels of few_mma.cuh for weights in numbers of their own.
#include "kernels/gemm/few_mma.cuh"

SPARK_FOR_EACH_WEIGHT(SPARK_FEW_MMA)

#define SPARK_DEFINE(dtype, Format)                                                   \
  extern "C" __global__ void __launch_bounds__(spark::linear_few_mma_block::kThreads) \
      linear_mma_half_8_##dtype(spark::ProductMmaArgs args) {                         \
    spark::product<Format, 1, spark::F16>(args);                                      \
  }                                                                                   \
  extern "C" __global__ void __launch_bounds__(spark::linear_few_mma_block::kThreads) \
      linear_mma_half_16_##dtype(spark::ProductMmaArgs args) {                        \
    spark::product<Format, 2, spark::F16>(args);                                      \
  }
SPARK_DEFINE(f32, spark::Plain<spark::F32>)
SPARK_DEFINE(f16, spark::Plain<spark::F16>)

extern "C" __global__ void __launch_bounds__(spark::linear_few_mma_block::kThreads)
    linear_mma_8_nvfp4_rounded(spark::ProductMmaArgs args, spark::RoundedTarget target) {
  spark::rounded_product<spark::Nvfp4, 1>(args, target);
}
extern "C" __global__ void __launch_bounds__(spark::linear_few_mma_block::kThreads)
    linear_mma_16_nvfp4_rounded(spark::ProductMmaArgs args, spark::RoundedTarget target) {
  spark::rounded_product<spark::Nvfp4, 2>(args, target);
}
