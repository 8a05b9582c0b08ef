// gather_rows.cu: y[i, c] = W[indices[i], c] of a weight in any format, decoded. A thread has one column of
// every groups-th row, of which it loads kElements indices together, then the elements. An index out of range
// gives 0: a kernel cannot throw. Reference: native/backend/cpu/ops/gather_rows.cc
#include "kernels/gemm/weight.cuh"
#include "kernels/ops/blocks.h"

namespace spark {
namespace {

template <typename Format>
__device__ void gather_rows(const GatherRowsArgs& args, int64_t groups) {
  using view_block::kElements;
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, cols = args.weight.cols;
  if (thread >= groups * cols) return;
  const int64_t col = thread % cols;
  for (int64_t first = thread / cols; first < args.count; first += kElements * groups) {
    int64_t rows[kElements];
    float values[kElements];
#pragma unroll
    for (int k = 0; k < kElements; ++k) rows[k] = args.indices[min(first + k * groups, args.count - 1)];
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const int64_t row = rows[k] < 0 ? rows[k] + args.weight.rows : rows[k];
      values[k] = row < 0 || row >= args.weight.rows ? 0.0f : Format::element(args.weight, row, col);
    }
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const int64_t i = first + k * groups;
      if (i < args.count) args.y[i * cols + col] = values[k];
    }
  }
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                                            \
  extern "C" __global__ void gather_rows_##dtype(spark::GatherRowsArgs args, int64_t groups) { \
    spark::gather_rows<Format>(args, groups);                                                  \
  }
#define SPARK_DEFINE_BLOCKS(dtype, enumerator, Format) SPARK_DEFINE(dtype, spark::InBlocks<Format>)
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)
SPARK_FOR_EACH_BLOCK_FORMAT(SPARK_DEFINE_BLOCKS)
