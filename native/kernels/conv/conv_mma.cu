// conv_mma.cu: convolutions of conv.cuh on tensor cores with f32 sums, [lines, depth] · [depth, cols] for
// each group. The left side are the codes of the weight, as conv_pack.cu lays them out; the right side is
// gathered and rounded on its way: to bf16, or to f16 in conv_mma_half_…. …_128 and …_64 form tiles of
// that size; which one it is changes no sum, because K rises in steps of 16 in both. Of the gradient of the
// weight, whose K are positions, dy is the left side and the image is gathered along K; its spans are added
// afterwards. Reference: native/backend/cpu/conv/conv_passes.cc
#include "kernels/conv/blocks.h"
#include "kernels/conv/conv.cuh"
#include "kernels/gemm/tiles.cuh"

namespace spark {
namespace {

static_assert(kThreads<conv_mma_block::kLargeTile> == conv_mma_block::threads(conv_mma_block::kLargeTile));
static_assert(kThreads<conv_mma_block::kSmallTile> == conv_mma_block::threads(conv_mma_block::kSmallTile));

__device__ Position of_lane(const Position& position, int lane) {
  Position of;
  for (int i = 0; i < 3; ++i) of.at[i] = __shfl_sync(0xFFFFFFFFu, position.at[i], lane);
  of.offset = __shfl_sync(0xFFFFFFFFu, position.offset, lane);
  return of;
}

__device__ Group::Window of_lane(const Group::Window& window, int lane) {
  Group::Window of;
  static_cast<Position&>(of) = of_lane(static_cast<const Position&>(window), lane);
  const auto image = reinterpret_cast<unsigned long long>(window.image);
  of.image = reinterpret_cast<const float*>(__shfl_sync(0xFFFFFFFFu, image, lane));
  return of;
}

// The right side. A thread has two neighbouring columns and every fourth k of a tile; the lanes of a warp
// have the same k, and find out where it leads for one of them each.
template <typename Pass, typename Number, int kTile>
struct GatheredColumns {
  static constexpr bool kAlongK = false;
  static constexpr int kPairs = kTile / 2, kRows = kThreads<kTile> / kPairs, kCount = kDepth / kRows;
  struct Registers {
    float values[kCount][2];
  };
  const Pass& pass;
  const float* k_scale;  // null: 1
  typename Pass::Across across[2];

  // Columns past the end repeat the last one; their sums are not stored.
  __device__ GatheredColumns(const Pass& pass, const float* k_scale, int64_t col)
      : pass(pass), k_scale(k_scale) {
    const int32_t first = static_cast<int32_t>(col) + threadIdx.x % kPairs * 2, last = pass.cols() - 1;
    for (int i = 0; i < 2; ++i) across[i] = pass.across(min(first + i, last));
  }

  __device__ bool starts_copies() const { return false; }
  __device__ void start(Tile<kTile>&, int64_t, int64_t) const {}
  __device__ void fetch(Registers& registers, int64_t, int64_t from) const {
    const int32_t k = static_cast<int32_t>(from) + threadIdx.x / kPairs + threadIdx.x % kCount * kRows;
    Position own = pass.along(k);
    if (k >= pass.depth()) own.at[0] = kOutside;
    const float scale = k_scale && k < pass.depth() ? k_scale[pass.weight_row(k)] : 1.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Position along = of_lane(own, i);
      for (int j = 0; j < 2; ++j) registers.values[i][j] = pass.right(along, across[j]);
      if (k_scale) {
        const float factor = __shfl_sync(0xFFFFFFFFu, scale, i);
        for (int j = 0; j < 2; ++j) registers.values[i][j] *= factor;
      }
    }
  }
  __device__ void store(Tile<kTile>& tile, const Registers& registers) const {
    const int pair = threadIdx.x % kPairs;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int k = threadIdx.x / kPairs + i * kRows;
      *reinterpret_cast<uint32_t*>(tile + column_offset<kTile>(k, pair / 4) + pair % 4 * 2) =
          round_pair<Number>(registers.values[i][0], registers.values[i][1]);
    }
  }
};

// The right side of the gradient of the weight. A thread has eight neighbouring positions of some columns; a
// lane finds out where one of the 32 positions of a tile leads.
template <typename Number, int kTile>
struct GatheredPositions {
  static constexpr bool kAlongK = true;
  struct Registers {
    float values[kLoads][8];
  };
  const WeightGradientPass& pass;
  int32_t first;  // position of K = 0
  Position across[kLoads];

  // Columns past the end repeat the last one; their sums are not stored.
  __device__ GatheredPositions(const WeightGradientPass& pass, int32_t first, int64_t col)
      : pass(pass), first(first) {
    for (int i = 0; i < kLoads; ++i) {
      const int32_t own = static_cast<int32_t>(col) + (threadIdx.x + i * kThreads<kTile>) / 4;
      across[i] = pass.across(min(own, pass.cols() - 1));
    }
  }

  __device__ bool starts_copies() const { return false; }
  __device__ void start(Tile<kTile>&, int64_t, int64_t) const {}
  __device__ void fetch(Registers& registers, int64_t, int64_t from) const {
    const int32_t k = first + static_cast<int32_t>(from) + threadIdx.x % 32;
    Group::Window own = pass.along(k);
    if (k >= pass.depth()) own.at[0] = kOutside;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const Group::Window along = of_lane(own, threadIdx.x % 4 * 8 + j);
      for (int i = 0; i < kLoads; ++i) registers.values[i][j] = pass.right(along, across[i]);
    }
  }
  __device__ void store(Tile<kTile>& tile, const Registers& registers) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int line = (threadIdx.x + i * kThreads<kTile>) / 4;
      Eight eight;
      for (int j = 0; j < 4; ++j) {
        eight.pairs[j] = round_pair<Number>(registers.values[i][2 * j], registers.values[i][2 * j + 1]);
      }
      *reinterpret_cast<Eight*>(tile + row_offset(line, threadIdx.x % 4)) = eight;
    }
  }
};

template <typename Number, int kTile>
__device__ void weight_gradient(const ConvGradientArgs& args) {
  __shared__ Stages<3, kTile> stages;
  const int64_t filters = args.pass.shape.filters;
  const int32_t blocks = gridDim.x / args.spans, tiles = blocks / args.pass.shape.groups;
  const int32_t span = blockIdx.x / blocks, block = blockIdx.x % blocks;
  const WeightGradientPass pass(args.pass, block / tiles);
  const int64_t lines = pass.lines(), cols = pass.cols();
  const auto [row, col] = corner<kTile>(block % tiles, lines, cols);
  const int64_t top = span * filters + pass.group * lines;
  const GatheredPositions<Number, kTile> right(pass, args.first + span * args.span, col);
  Sums<kTile> sums = {};
  add_segment(stages, PackedRows<kTile>{args.left + top * args.span, lines, args.span}, right, row, col,
              PairStep<Number>{}, sums);
  store_tile<kTile>(lines, cols, row, col, sums, stages,
                    [&](int64_t m, int64_t n, float sum) { args.pass.out[(top + m) * cols + n] = sum; });
}

template <typename Pass, typename Number, int kTile>
__device__ void product(const ConvMmaArgs& args) {
  __shared__ Stages<3, kTile> stages;
  const int32_t tiles = gridDim.x / args.pass.shape.groups;
  const Pass pass(args.pass, blockIdx.x / tiles);
  const int64_t lines = pass.lines(), depth = pass.depth();
  const auto [row, col] = corner<kTile>(blockIdx.x % tiles, lines, pass.cols());
  const uint16_t* left = args.left + pass.group * lines * padded_depth(depth);
  const GatheredColumns<Pass, Number, kTile> right(pass, args.k_scale, col);
  Sums<kTile> sums = {};
  add_segment(stages, PackedRows<kTile>{left, lines, depth}, right, row, col, PairStep<Number>{}, sums);
  const int32_t own = static_cast<int32_t>(col) + threadIdx.x % kTile;
  const int64_t start = pass.start(min(own, pass.cols() - 1));
  store_tile<kTile>(lines, pass.cols(), row, col, sums, stages, [&](int64_t m, int64_t, float sum) {
    const float scale = args.line_scale ? args.line_scale[pass.group * lines + m] : 1.0f;
    pass.store(static_cast<int32_t>(m), start, sum * (scale * args.tensor_scale));
  });
}

}  // namespace
}  // namespace spark

#define SPARK_TILES(name, Pass, Number)                                                \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(128), 2) \
      name##_128(spark::ConvMmaArgs args) {                                            \
    spark::product<spark::Pass, spark::Number, 128>(args);                             \
  }                                                                                    \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(64), 4)  \
      name##_64(spark::ConvMmaArgs args) {                                             \
    spark::product<spark::Pass, spark::Number, 64>(args);                              \
  }
SPARK_TILES(conv_mma, ForwardPass, BF16)
SPARK_TILES(conv_mma_half, ForwardPass, F16)
SPARK_TILES(conv_mma_transposed, TransposedPass, BF16)
SPARK_TILES(conv_mma_half_transposed, TransposedPass, F16)
#undef SPARK_TILES

#define SPARK_TILES(name, Number)                                                      \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(128), 2) \
      name##_128(spark::ConvGradientArgs args) {                                       \
    spark::weight_gradient<spark::Number, 128>(args);                                  \
  }                                                                                    \
  extern "C" __global__ void __launch_bounds__(spark::conv_mma_block::threads(64), 4)  \
      name##_64(spark::ConvGradientArgs args) {                                        \
    spark::weight_gradient<spark::Number, 64>(args);                                   \
  }
SPARK_TILES(conv_mma_gradient, BF16)
SPARK_TILES(conv_mma_half_gradient, F16)
