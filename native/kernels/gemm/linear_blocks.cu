// linear_blocks.cu: linear_<dtype> and linear_backward_<dtype> of linear.cu for weights in block formats,
// whose blocks are read as they lie in files.
#include "kernels/gemm/float_tiles.cuh"

#define SPARK_DEFINE(dtype, enumerator, Format)                                                             \
  extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads, spark::linear_block::kBlocks) \
      linear_##dtype(spark::ProductArgs args) {                                                             \
    spark::product<spark::WeightRows<spark::InBlocks<Format>>>(args);                                       \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads, spark::linear_block::kBlocks) \
      linear_backward_##dtype(spark::ProductArgs args) {                                                    \
    spark::product<spark::WeightColumns<spark::InBlocks<Format>>>(args);                                    \
  }
SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DEFINE)
