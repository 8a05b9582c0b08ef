// gather_rows.cu: y[i, c] = W[indices[i], c] of a weight in any format, decoded. One thread per element; an
// index out of range gives 0: a kernel cannot throw. Reference: native/backend/cpu/ops/gather_rows.cc
#include "kernels/gemm/weight.cuh"

namespace spark {
namespace {

template <typename Format>
__device__ void gather_rows(const GatherRowsArgs& args) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  if (at >= args.count * cols) return;
  const int64_t index = args.indices[at / cols], row = index < 0 ? index + rows : index;
  args.y[at] = row < 0 || row >= rows ? 0.0f : Format::element(args.weight, row, at % cols);
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                            \
  extern "C" __global__ void gather_rows_##dtype(spark::GatherRowsArgs args) { \
    spark::gather_rows<Format>(args);                                          \
  }
#define SPARK_DEFINE_BLOCKS(dtype, enumerator, Format) SPARK_DEFINE(dtype, spark::InBlocks<Format>)
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)
SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DEFINE_BLOCKS)
