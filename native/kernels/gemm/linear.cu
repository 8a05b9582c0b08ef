// linear.cu: matrix products with a frozen weight in any format, sums[M,N] = a[M,K]·w[N,K]ᵀ (+
// a2[M,R]·b2[N,R]ᵀ). linear_<dtype> takes the rows of the weight as lines along K, linear_backward_<dtype>
// its columns; the operands and what becomes of the sums are described in product_args.h. linear_add_parts:
// the same of parts that they left. column_sums: Σ_t a[t, :] ∘ b[t, :]. One block per 64×64 tile; tiles of 16
// along K in shared memory; 4×4 sums per thread, f32. Trap: a sum is formed in chunks of 256 along K, in
// order; it must not depend on M, N or the grid. Reference: native/backend/cpu/gemm/product.cc, columns.h
#include "kernels/dora/norm.cuh"
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/lines.cuh"
#include "kernels/gemm/weight.cuh"

namespace spark {
namespace {

using linear_block::kChunk;
using linear_block::kThreads;
using linear_block::kTile;
constexpr int kDepth = 16;
constexpr int kSide = 16;  // threads along each side of a block; a thread's sums are kSide apart
constexpr int kSums = kTile / kSide;
static_assert(kSide * kSide == kThreads);

template <typename Format>
struct WeightRows {
  const Weight& weight;
  __device__ bool k_first() const { return true; }
  __device__ float element(int64_t line, int64_t k) const { return Format::element(weight, line, k); }
};

template <typename Format>
struct WeightColumns {
  const Weight& weight;
  __device__ bool k_first() const { return false; }
  __device__ float element(int64_t line, int64_t k) const { return Format::element(weight, k, line); }
};

using Tile = float[kDepth][kTile + 1];  // one more: the lines of one k lie in different banks

// Neighbouring threads read neighbouring addresses. Outside of the operand is zero.
template <typename Operand>
__device__ void load(const Operand& operand, int64_t line, int64_t lines, int64_t k, int64_t depth,
                     Tile& tile) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kSide * kSide) {
    const int at_line = operand.k_first() ? i / kDepth : i % kTile;
    const int at_k = operand.k_first() ? i % kDepth : i / kTile;
    const bool inside = line + at_line < lines && k + at_k < depth;
    tile[at_k][at_line] = inside ? operand.element(line + at_line, k + at_k) : 0.0f;
  }
}

// A range of K that begins where a chunk does.
struct Range {
  int64_t first, end;
};

template <typename A, typename B>
__device__ void add_segment(const A& a, const B& b, int64_t row, int64_t rows, int64_t col, int64_t cols,
                            Range range, float (&totals)[kSums][kSums]) {
  __shared__ Tile left, right;
  const int64_t depth = range.end;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  for (int64_t chunk = range.first; chunk < depth; chunk += kChunk) {
    float sums[kSums][kSums] = {};
    for (int64_t k = chunk; k < min(depth, chunk + kChunk); k += kDepth) {
      __syncthreads();  // the last tiles have been used
      load(a, row, rows, k, depth, left);
      load(b, col, cols, k, depth, right);
      __syncthreads();
      for (int j = 0; j < kDepth; ++j) {
#pragma unroll
        for (int m = 0; m < kSums; ++m) {
#pragma unroll
          for (int n = 0; n < kSums; ++n) {
            sums[m][n] = fmaf(left[j][y + m * kSide], right[j][x + n * kSide], sums[m][n]);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kSums; ++m) {
#pragma unroll
      for (int n = 0; n < kSums; ++n) totals[m][n] += sums[m][n];
    }
  }
}

// Calls visit(m, n, sum) for the sums of this thread that are inside of the product.
template <typename Visit>
__device__ void for_each_sum(int64_t row, int64_t rows, int64_t col, int64_t cols,
                             const float (&sums)[kSums][kSums], Visit visit) {
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      const int64_t m = row + y + i * kSide, n = col + x + j * kSide;
      if (m < rows && n < cols) visit(m, n, sums[i][j]);
    }
  }
}

// The chunk at `first`, which may lie in front of K or behind it.
__device__ Range chunk_of(int64_t first, int64_t depth) {
  return first < 0 ? Range{0, 0} : Range{first, min(first + kChunk, depth)};
}

template <typename B>
__device__ void product(const ProductArgs& args) {
  const int64_t row_tiles = (args.rows + kTile - 1) / kTile, col_tiles = (args.cols + kTile - 1) / kTile;
  const int64_t part = blockIdx.x / (row_tiles * col_tiles), tile = blockIdx.x % (row_tiles * col_tiles);
  const int64_t row = tile % row_tiles * kTile, col = tile / row_tiles * kTile;
  Range first{0, args.depth}, second{0, args.depth2};
  if (args.parts) {
    const int64_t start = part * kChunk;
    first = chunk_of(start, args.depth);
    second = chunk_of(start - (args.depth + kChunk - 1) / kChunk * kChunk, args.depth2);
  }
  float sums[kSums][kSums] = {};
  add_segment(FloatLines{args.a}, B{args.w}, row, args.rows, col, args.cols, first, sums);
  add_segment(FloatLines{args.a2}, FloatLines{args.b2}, row, args.rows, col, args.cols, second, sums);
  for_each_sum(row, args.rows, col, args.cols, sums, [&](int64_t m, int64_t n, float sum) {
    if (args.parts) {
      args.parts[(part * args.rows + m) * args.cols + n] = sum;
    } else {
      store(args.epilogue, m, n, sum);
    }
  });
}

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

// partial[chunk, col] = Σ over the chunk's rows of a[row, col] · b[row, col]. A block is kWidth columns wide;
// its kHeight rows of threads take every kHeight-th row each and are added in order.
__device__ void column_sums(const float* a, const float* b, int64_t rows, int64_t cols, float* partial) {
  using namespace column_sums_block;
  __shared__ float sums[kHeight][kWidth];
  const int64_t groups = (cols + kWidth - 1) / kWidth;
  const int64_t col = blockIdx.x % groups * kWidth + threadIdx.x;
  const int64_t chunk = blockIdx.x / groups;
  float sum = 0;
  if (col < cols) {
    for (int64_t row = chunk * column_sums_block::kChunk + threadIdx.y;
         row < min(rows, (chunk + 1) * column_sums_block::kChunk); row += kHeight) {
      const int64_t at = row * cols + col;
      sum += b ? a[at] * b[at] : a[at];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (int y = 1; y < kHeight; ++y) sum += sums[y][threadIdx.x];
  partial[chunk * cols + col] = sum;
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                           \
  extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads) \
      linear_##dtype(spark::ProductArgs args) {                               \
    spark::product<spark::WeightRows<Format>>(args);                          \
  }                                                                           \
  extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads) \
      linear_backward_##dtype(spark::ProductArgs args) {                      \
    spark::product<spark::WeightColumns<Format>>(args);                       \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)

extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads)
    linear_add_parts_f32(spark::ProductArgs args, int64_t parts) {
  spark::add_parts(args, parts);
}

extern "C" __global__ void __launch_bounds__(spark::linear_block::kThreads)
    matmul_f32(spark::MatmulArgs args) {
  spark::matmul(args);
}

extern "C" __global__ void column_sums_f32(const float* a, const float* b, int64_t rows, int64_t cols,
                                           float* partial) {
  spark::column_sums(a, b, rows, cols, partial);
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
