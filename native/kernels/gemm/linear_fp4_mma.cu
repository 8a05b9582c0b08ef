// linear_fp4_mma.cu: sums[M,N] = factors[M] · w_scale · a[M,K]·w[N,K]ᵀ where both sides are NVFP4, on the FP4
// tensor cores of compute capability 12.x, with f32 sums (struct Fp4MmaArgs). Four codes take the place of a
// 16-bit number in the tiles of tiles.cuh, whose fragments then are those of this instruction, too; a tile is
// 128 along K. …_rounded stores results as rows in codes. Block scales lie row by row, eight to a tile, and K
// is a multiple of 64. Trap: K in these tiles counts units of four codes. Reference:
// native/backend/cpu/gemm/linear.cc
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/mma_fp4.cuh"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

using linear_mma_block::kTile;
static_assert(kThreads<kTile> == linear_mma_block::kThreads);
constexpr int kStages = 2, kSteps = kDepth / 16;

struct Fp4Stages : Stages<kStages, kTile> {
  uint32_t scales[kStages][2][kSteps][kTile];  // of the left and the right side, four in each
};

// Brings the scales of a tile, each thread those of a row of one side, and multiplies with them.
struct ScaledStep {
  Fp4Stages& stages;
  const uint32_t* scales;  // of the row of this thread
  int words;

  __device__ void start(int stage, int64_t tile) const {
    const int first = static_cast<int>(tile) * kSteps;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const bool inside = first + k < words;
      copy_async_4(&stages.scales[stage][threadIdx.x / kTile][k][threadIdx.x % kTile],
                   inside ? scales + first + k : scales, inside);
    }
  }

  __device__ void multiply(int stage, int k, int m, int n, float (&sums)[4], const uint32_t (&a)[4],
                           uint32_t b0, uint32_t b1) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp % 2 * kWarpRows<kTile> + m * 16 + lane % 2 * 8 + lane / 4;
    const int col = warp / 2 * kWarpCols + n * 8 + lane / 4;
    mma_16x8x64(sums, a, b0, b1, stages.scales[stage][0][k][row], stages.scales[stage][1][k][col]);
  }
};

template <typename Store>
__device__ void product(const Fp4MmaArgs& args, const Store& store) {
  __shared__ Fp4Stages stages;
  const auto [row, col] = corner<kTile>(blockIdx.x, args.rows, args.cols);
  const int64_t units = args.depth / 4;
  const int words = static_cast<int>(args.depth / 64), line = threadIdx.x % kTile;
  const bool left = threadIdx.x < kTile;
  const int64_t at = left ? min(row + line, args.rows - 1) : min(col + line, args.cols - 1);
  const auto* scales = reinterpret_cast<const uint32_t*>(left ? args.a_scales : args.w_scales);
  const ScaledStep step{stages, scales + at * words, words};
  const Weight codes{DType::kBF16, args.cols, units, args.w, nullptr, nullptr, 0, false};
  Sums<kTile> sums = {};
  add_segment(stages, PackedRows<kTile>{args.a, args.rows, units},
              WeightLines<StoredPairs, true, kTile>{codes}, row, col, step, sums);
  store_tile<kTile>(args.rows, args.cols, row, col, sums, stages, [&](int64_t m, int64_t n, float sum) {
    store(m, n, sum * (args.factors[m] * args.w_scale));
  });
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::linear_mma_block::kThreads, 2)
    linear_fp4_mma(spark::Fp4MmaArgs args) {
  spark::product(args, [&](int64_t m, int64_t n, float sum) { spark::store(args.epilogue, m, n, sum); });
}
extern "C" __global__ void __launch_bounds__(spark::linear_mma_block::kThreads, 2)
    linear_fp4_mma_rounded(spark::Fp4MmaArgs args, spark::RoundedTarget target) {
  spark::product(
      args, [&](int64_t m, int64_t n, float sum) { spark::store_rounded(args.epilogue, target, m, n, sum); });
}
