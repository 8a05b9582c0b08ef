// linear_blocks_few_mma.cu: the kernels of few_mma.cuh for weights in block formats.
#include "kernels/gemm/few_mma.cuh"

#define SPARK_DEFINE(dtype, enumerator, Format) SPARK_FEW_MMA(dtype, spark::InBlocks<Format>)
SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DEFINE)
