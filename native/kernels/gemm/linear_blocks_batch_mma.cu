// linear_blocks_batch_mma.cu: the kernels of batch_mma.cuh for weights in block formats.
#include "kernels/gemm/batch_mma.cuh"

#define SPARK_DEFINE(dtype, enumerator, Format) SPARK_BATCH_MMA(dtype, spark::InBlocks<Format>)
SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DEFINE)
