// matmul_mma.cu: products of two activations on tensor cores, y[i, j] = alpha · a[i, j] · b[i, j] (struct
// MatmulArgs of backend/backend.h), with f32 sums. Both sides are rounded on their way: to bf16 in
// matmul_<layout>_bf16, to f16 in matmul_<layout>_f16. The layout says of a and of b whether the matrix is
// row-major (n) or column-major (t). K rises in steps of 16 whatever M, N and the place of an element.
// Reference: native/backend/cpu/gemm/matmul.cc
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

using matmul_mma_block::kTile;
static_assert(kThreads<kTile> == matmul_mma_block::kThreads);

// Lines of f32 along K, or along each other, that are `pitch` elements apart. Beyond them is zero.
template <typename Number, bool kLinesAlongK>
struct RoundedLines {
  static constexpr bool kAlongK = kLinesAlongK;
  using Registers = EightFloats[kLoads];
  const float* data;
  int64_t lines, depth, pitch;

  __device__ bool starts_copies() const { return false; }
  __device__ void start(Tile<kTile>&, int64_t, int64_t) const {}
  __device__ void fetch(Registers& registers, int64_t line, int64_t k) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads<kTile>;
      const int64_t row = kAlongK ? line + at / 4 : k + at / (kTile / 8);
      const int64_t col = kAlongK ? k + at % 4 * 8 : line + at % (kTile / 8) * 8;
      const int64_t rows = kAlongK ? lines : depth, cols = kAlongK ? depth : lines;
      registers[i].load(data + row * pitch + col, row < rows ? cols - col : 0);
    }
  }
  __device__ void store(Tile<kTile>& tile, const Registers& registers) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads<kTile>;
      const int offset =
          kAlongK ? row_offset(at / 4, at % 4) : column_offset<kTile>(at / (kTile / 8), at % (kTile / 8));
      *reinterpret_cast<Eight*>(tile + offset) = registers[i].template rounded<Number>();
    }
  }
};

// One block per tile of one matrix of the batch.
template <typename Number, bool kRowMajorA, bool kRowMajorB>
__device__ void product(const MatmulArgs& args) {
  __shared__ Stages<3, kTile> stages;
  const int64_t tiles = (args.m + kTile - 1) / kTile * ((args.n + kTile - 1) / kTile);
  const int64_t i = blockIdx.x / tiles / args.inner, j = blockIdx.x / tiles % args.inner;
  const auto [row, col] = corner<kTile>(blockIdx.x % tiles, args.m, args.n);
  const RoundedLines<Number, kRowMajorA> a{args.a.data + i * args.a.outer + j * args.a.inner, args.m, args.k,
                                           kRowMajorA ? args.a.row : args.a.col};
  const RoundedLines<Number, !kRowMajorB> b{args.b.data + i * args.b.outer + j * args.b.inner, args.n, args.k,
                                            kRowMajorB ? args.b.row : args.b.col};
  float* y = args.y + i * args.y_outer + j * args.y_inner;
  Sums<kTile> sums = {};
  add_segment(stages, a, b, row, col, PairStep<Number>{}, sums);
  store_tile<kTile>(args.m, args.n, row, col, sums, stages,
                    [&](int64_t m, int64_t n, float sum) { y[m * args.y_row + n] = args.alpha * sum; });
}

}  // namespace
}  // namespace spark

#define SPARK_LAYOUT(name, Number, row_major_a, row_major_b)                         \
  extern "C" __global__ void __launch_bounds__(spark::matmul_mma_block::kThreads, 4) \
      name(spark::MatmulArgs args) {                                                 \
    spark::product<spark::Number, row_major_a, row_major_b>(args);                   \
  }
#define SPARK_LAYOUTS(number, Number)                   \
  SPARK_LAYOUT(matmul_nn_##number, Number, true, true)  \
  SPARK_LAYOUT(matmul_nt_##number, Number, true, false) \
  SPARK_LAYOUT(matmul_tn_##number, Number, false, true) \
  SPARK_LAYOUT(matmul_tt_##number, Number, false, false)
SPARK_LAYOUTS(bf16, BF16)
SPARK_LAYOUTS(f16, F16)
