// linear.cu: matrix products with a frozen weight in any format, sums[M,N] = a[M,K]·w[N,K]ᵀ (+
// a2[M,R]·b2[N,R]ᵀ). linear_<dtype> takes the rows of the weight as lines along K, linear_backward_<dtype>
// its columns; the operands and what becomes of the sums are described in product_args.h. linear_add_parts:
// the same of parts that they left. column_sums: Σ_t a[t, :] ∘ b[t, :]. One block per 64×64 tile; tiles of 16
// along K in shared memory; 4×4 sums per thread, f32. Trap: a sum is formed in chunks of 256 along K, in
// order; it must not depend on M, N or the grid. Reference: native/backend/cpu/gemm/product.cc, columns.h
#include "kernels/column_sums.cuh"
#include "kernels/dora/norm.cuh"
#include "kernels/gemm/float_tiles.cuh"

namespace spark {
namespace {

// In the order in which a single block adds chunks.
__device__ void add_parts(const ProductArgs& args, int64_t parts) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, count = args.rows * args.cols;
  if (i >= count) return;
  float sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += args.parts[part * count + i];
  store(args.epilogue, i / args.cols, i % args.cols, sum);
}

// One block per tile of one matrix of the batch; columns of b are lines along K.
__device__ void matmul(const MatmulArgs& args) {
  const int64_t row_tiles = (args.m + kTile - 1) / kTile, tiles = row_tiles * ((args.n + kTile - 1) / kTile);
  const int64_t tile = blockIdx.x % tiles, i = blockIdx.x / tiles / args.inner,
                j = blockIdx.x / tiles % args.inner;
  const int64_t row = tile % row_tiles * kTile, col = tile / row_tiles * kTile;
  Lines a, b;
  a.data = args.a.data + i * args.a.outer + j * args.a.inner;
  a.line_stride = args.a.row;
  a.k_stride = args.a.col;
  b.data = args.b.data + i * args.b.outer + j * args.b.inner;
  b.line_stride = args.b.col;
  b.k_stride = args.b.row;
  float* y = args.y + i * args.y_outer + j * args.y_inner;
  float sums[kSums][kSums] = {};
  add_segment(FloatLines{a}, FloatLines{b}, row, args.m, col, args.n, {0, args.k}, sums);
  for_each_sum(row, args.m, col, args.n, sums,
               [&](int64_t m, int64_t n, float sum) { y[m * args.y_row + n] = args.alpha * sum; });
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads, spark::linear_block::kBlocks) \
      linear_##dtype(spark::ProductArgs args) {                                                             \
    spark::product<spark::WeightRows<Format>>(args);                                                        \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads, spark::linear_block::kBlocks) \
      linear_backward_##dtype(spark::ProductArgs args) {                                                    \
    spark::product<spark::WeightColumns<Format>>(args);                                                     \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)

extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads)
    linear_add_parts_f32(spark::ProductArgs args, int64_t parts) {
  spark::add_parts(args, parts);
}

extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads, spark::linear_block::kBlocks)
    matmul_f32(spark::MatmulArgs args) {
  spark::matmul(args);
}

// partial[chunk, col] = Σ over the chunk's rows of a[row, col] · b[row, col]; b may be null.
extern "C" __global__ void column_sums_f32(const float* a, const float* b, int64_t rows, int64_t cols,
                                           float* partial) {
  spark::column_sums<1>(
      rows, cols,
      [&](int64_t col) {
        return [=](int64_t row, float(&sum)[1]) {
          const int64_t at = row * cols + col;
          sum[0] += b ? a[at] * b[at] : a[at];
        };
      },
      [&](int64_t at, const float(&sum)[1]) { partial[at] = sum[0]; });
}

// out[col] = Σ_chunk partial[chunk, col] / max(norm[col], 1e-12); norm may be null.
extern "C" __global__ void column_sums_finish_f32(const float* partial, int64_t chunks, int64_t cols,
                                                  const float* norm, float* out) {
  const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  float sum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * cols + col];
  if (norm) sum /= spark::clamped(norm[col]);
  out[col] = sum;
}
