// linear_fp4_mma.cu: sums[M,N] = factor · a[M,K]·w[N,K]ᵀ where both sides are NVFP4, on the FP4 tensor cores
// of compute capability 12.x, with f32 sums (struct Fp4MmaArgs). Four codes take the place of a 16-bit number
// in the tiles of tiles.cuh, whose fragments then are those of this instruction, too; a tile is 128 along K.
// Block scales lie as swizzle_scales orders them: 512 bytes for 128 rows and 64 along K. Trap: K in these
// tiles counts units of four codes. Reference: native/backend/cpu/gemm/linear.cc
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/mma_fp4.cuh"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

using linear_mma_block::kTile;
static_assert(kThreads<kTile> == linear_mma_block::kThreads);
constexpr int kStages = 2, kScaleBytes = 512, kSteps = kDepth / 16;

struct Fp4Stages : Stages<kStages, kTile> {
  uint8_t scales[kStages][2][kSteps][kScaleBytes];  // of the left and the right side
};

// Brings the scales of a tile and multiplies with them.
struct ScaledStep {
  Fp4Stages& stages;
  const uint8_t *left, *right;  // scales of the rows and of the columns of this block
  int64_t across;               // 512 bytes each along K

  __device__ void start(int stage, int64_t tile) const {
    constexpr int kPieces = kScaleBytes / 16;
    const int side = threadIdx.x / (kSteps * kPieces), k = threadIdx.x / kPieces % kSteps;
    if (side > 1) return;
    const int at = threadIdx.x % kPieces * 16;
    const int64_t source = tile * kSteps + k;
    const bool inside = source < across;
    const uint8_t* scales = side ? right : left;
    copy_async(stages.scales[stage][side][k] + at, inside ? scales + source * kScaleBytes + at : scales,
               inside);
  }

  __device__ uint32_t scale(int stage, int side, int k, int row) const {
    const uint8_t* scales = stages.scales[stage][side][k] + row % 32 * 16 + row / 32 * 4;
    return *reinterpret_cast<const uint32_t*>(scales);
  }

  __device__ void multiply(int stage, int k, int m, int n, float (&sums)[4], const uint32_t (&a)[4],
                           uint32_t b0, uint32_t b1) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp % 2 * kWarpRows<kTile> + m * 16 + lane % 2 * 8 + lane / 4;
    const int col = warp / 2 * kWarpCols + n * 8 + lane / 4;
    mma_16x8x64(sums, a, b0, b1, scale(stage, 0, k, row), scale(stage, 1, k, col));
  }
};

__device__ void product(const Fp4MmaArgs& args) {
  __shared__ Fp4Stages stages;
  const auto [row, col] = corner<kTile>(blockIdx.x, args.rows, args.cols);
  const int64_t units = args.depth / 4, across = (args.depth + 63) / 64, scales = across * kScaleBytes;
  const ScaledStep step{stages, args.a_scales + row / kTile * scales, args.w_scales + col / kTile * scales,
                        across};
  const Weight codes{DType::kBF16, args.cols, units, args.w, nullptr, nullptr, 0, false};
  Sums<kTile> sums = {};
  add_segment(stages, PackedRows<kTile>{args.a, args.rows, units},
              WeightLines<StoredPairs, true, kTile>{codes}, row, col, step, sums);
  const float factor = args.factor[0];
#pragma unroll
  for (int i = 0; i < kRowBlocks<kTile> * kColBlocks * 4; ++i) {
    sums[i / 4 / kColBlocks][i / 4 % kColBlocks][i % 4] *= factor;
  }
  store_tile<kTile>(args.rows, args.cols, row, col, sums, stages,
                    [&](int64_t m, int64_t n, float sum) { store(args.epilogue, m, n, sum); });
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::linear_mma_block::kThreads, 2)
    linear_fp4_mma(spark::Fp4MmaArgs args) {
  spark::product(args);
}
