// linear_blocks_mma.cu: the kernels of rows_mma.cuh for weights in block formats.
#include "kernels/gemm/rows_mma.cuh"

#define SPARK_DEFINE(dtype, enumerator, Format) SPARK_ROWS_MMA(dtype, spark::InBlocks<Format>)
SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DEFINE)
