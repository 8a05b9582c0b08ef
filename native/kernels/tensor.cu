// tensor.cu: the products of linear.cu on tensor cores, sums[M,N] = a[M,K]·w[N,K]ᵀ (+ a2[M,R]·b2[N,R]ᵀ), with
// operands rounded to bf16 and f32 sums. tensor_<dtype> takes the rows of the weight as lines along K,
// tensor_backward_<dtype> its columns. One block of 8 warps per 128x128 tile, tiles of 32 along K in three
// stages of shared memory: weights that are not bf16 are decoded on their way there. K rises in steps of 16
// whatever M, N and the place of an element. Trap: 16 bytes of a tile are permuted within its lines, so that
// the eight that ldmatrix reads lie in different banks. Reference: native/backend/cpu/product.cc
#include "kernels/epilogue.cuh"
#include "kernels/pairs.cuh"

namespace spark {
namespace {

constexpr int kTile = 128, kDepth = kDepthUnit, kStages = 3;
constexpr int kThreads = 256, kLoads = kTile * kDepth / 8 / kThreads;  // runs of eight that a thread moves
constexpr int kGroup = 16;  // tiles of rows that share the tiles of columns while those are in the L2 cache
constexpr int kWarpRows = 64, kWarpCols = 32;  // of a tile, by one warp
constexpr int kRowBlocks = kWarpRows / 16, kColBlocks = kWarpCols / 8;

using Tile = uint16_t[kTile * kDepth];

// Place of run `eight` of a line: lines of 32 along K, or of 128 along N.
__device__ int row_place(int line, int eight) { return line * kDepth + (eight ^ (line >> 1 & 3)) * 8; }
__device__ int column_place(int k, int eight) { return k * kTile + (eight ^ (k & 7)) * 8; }

// Packed lines [lines, padded_depth(depth)]. Lines past the end repeat the last one; their sums are not
// stored.
struct PackedRows {
  static constexpr bool kAlongK = true;
  struct Registers {};
  const uint16_t* data;
  int64_t lines, depth;

  __device__ bool starts_copies() const { return true; }
  __device__ void start(Tile& tile, int64_t line, int64_t k) const {
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads, row = at / 4, eight = at % 4;
      const int64_t source = min(line + row, lines - 1) * padded_depth(depth) + k + eight * 8;
      copy_async(tile + row_place(row, eight), data + source, true);
    }
  }
  __device__ void fetch(Registers (&)[kLoads], int64_t, int64_t) const {}
  __device__ void store(Tile&, const Registers (&)[kLoads]) const {}
};

// A weight, whose rows or columns are the lines.
template <typename Format, bool kRows>
struct WeightLines {
  static constexpr bool kAlongK = kRows;
  using Registers = Codes<Format>;
  const Weight& weight;

  __device__ bool starts_copies() const {
    return Registers::kStoredAsPairs && weight.cols % 8 == 0 &&
           reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
  }
  // Row and column of run `at` of a tile, and its place there.
  __device__ int64_t row(int at, int64_t line, int64_t k) const {
    return kRows ? line + at / 4 : k + at / 16;
  }
  __device__ int64_t col(int at, int64_t line, int64_t k) const {
    return kRows ? k + at % 4 * 8 : line + at % 16 * 8;
  }
  __device__ static int place(int at) {
    return kRows ? row_place(at / 4, at % 4) : column_place(at / 16, at % 16);
  }
  __device__ bool inside(int64_t row, int64_t col) const { return row < weight.rows && col < weight.cols; }

  __device__ void start(Tile& tile, int64_t line, int64_t k) const {
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads;
      const int64_t r = row(at, line, k), c = col(at, line, k);
      const auto* data = static_cast<const uint16_t*>(weight.data);
      copy_async(tile + place(at), inside(r, c) ? data + r * weight.cols + c : data, inside(r, c));
    }
  }
  __device__ void fetch(Registers (&registers)[kLoads], int64_t line, int64_t k) const {
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads;
      const int64_t r = row(at, line, k), c = col(at, line, k);
      registers[i].load(weight, min(r, weight.rows - 1), r < weight.rows ? c : weight.cols);
    }
  }
  __device__ void store(Tile& tile, const Registers (&registers)[kLoads]) const {
    for (int i = 0; i < kLoads; ++i) {
      *reinterpret_cast<Eight*>(tile + place(threadIdx.x + i * kThreads)) = registers[i].decode();
    }
  }
};

using Sums = float[kRowBlocks][kColBlocks][4];

// sums += left · rightᵀ of this warp's part of a tile.
template <bool kAlongK>
__device__ void multiply(const Tile& left, const Tile& right, Sums& sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int top = warp % 2 * kWarpRows, first = warp / 2 * kWarpCols;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    uint32_t a[kRowBlocks][4], b[kColBlocks / 2][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
      load_matrices(a[m], left + row_place(top + m * 16 + lane % 16, step * 2 + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < kColBlocks / 2; ++n) {
      if constexpr (kAlongK) {
        const int line = first + n * 16 + lane % 8 + lane / 16 * 8;
        load_matrices(b[n], right + row_place(line, step * 2 + lane / 8 % 2));
      } else {
        const int eight = first / 8 + n * 2 + lane / 16;
        load_matrices_transposed(b[n], right + column_place(step * 16 + lane % 16, eight));
      }
    }
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kColBlocks; ++n) {
        mma_16x8x16(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

struct alignas(16) Stages {
  Tile left[kStages], right[kStages];
};

// Tile t + 2 is on its way while tile t is multiplied.
template <typename Right>
__device__ void add_segment(Stages& stages, const PackedRows& left, const Right& right, int64_t row,
                            int64_t col, Sums& sums) {
  const int64_t tiles = padded_depth(left.depth) / kDepth;
  const bool copies = right.starts_copies();
  typename Right::Registers registers[kLoads];
  const auto start = [&](int64_t tile) {
    if (tile < tiles) {
      left.start(stages.left[tile % kStages], row, tile * kDepth);
      if (copies) {
        right.start(stages.right[tile % kStages], col, tile * kDepth);
      } else {
        right.fetch(registers, col, tile * kDepth);
      }
    }
    copy_commit();
  };
  const auto finish = [&](int64_t tile) {
    if (tile < tiles && !copies) right.store(stages.right[tile % kStages], registers);
  };
  for (int tile = 0; tile < kStages - 1; ++tile) {
    start(tile);
    finish(tile);
  }
  for (int64_t tile = 0; tile < tiles; ++tile) {
    copy_wait<kStages - 2>();
    __syncthreads();  // the tile is there for all, and all are done with the one before
    start(tile + kStages - 1);
    multiply<Right::kAlongK>(stages.left[tile % kStages], stages.right[tile % kStages], sums);
    finish(tile + kStages - 1);
  }
  copy_wait<0>();
  __syncthreads();  // the stages may be used again
}

// Scales of a weight's rows stand outside of its codes.
template <typename Format, bool kRows>
__device__ void scale(const TensorArgs& args, int64_t col, Sums& sums) {
  const int64_t first = col + threadIdx.x / 32 / 2 * kWarpCols + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kColBlocks * 2; ++i) {
    const int64_t n = min(first + i / 2 * 8 + i % 2, args.cols - 1);
    const float row_scale = kRows ? Codes<Format>::row_scale(args.w, n) : 1.0f;
    const float factor = row_scale * Codes<Format>::tensor_scale(args.w);
#pragma unroll
    for (int m = 0; m < kRowBlocks * 2; ++m) sums[m / 2][i / 2][m % 2 * 2 + i % 2] *= factor;
  }
}

// By way of shared memory, one half of the rows after the other: neighbouring threads store neighbouring
// columns, and the code of a store is there once.
__device__ void store_tile(const TensorArgs& args, int64_t row, int64_t col, const Sums& sums,
                           Stages& stages) {
  constexpr int kPitch = kTile + 4;
  static_assert(sizeof(Stages) >= kWarpRows * kPitch * sizeof(float));
  float* tile = reinterpret_cast<float*>(&stages);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int half = 0; half < 2; ++half) {
    __syncthreads();
    if (warp % 2 == half) {
#pragma unroll
      for (int i = 0; i < kRowBlocks * kColBlocks * 4; ++i) {
        const int m = i / 4 / kColBlocks, n = i / 4 % kColBlocks, at = i % 4;
        const int line = m * 16 + at / 2 * 8 + lane / 4;
        tile[line * kPitch + warp / 2 * kWarpCols + n * 8 + lane % 4 * 2 + at % 2] = sums[m][n][at];
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < kWarpRows * kTile; i += kThreads) {
      const int64_t m = row + half * kWarpRows + i / kTile, n = col + i % kTile;
      if (m < args.rows && n < args.cols) store(args.epilogue, m, n, tile[i / kTile * kPitch + i % kTile]);
    }
  }
}

template <typename Format, bool kRows>
__device__ void product(const TensorArgs& args) {
  __shared__ Stages stages;
  const int64_t row_tiles = (args.rows + kTile - 1) / kTile, col_tiles = (args.cols + kTile - 1) / kTile;
  const int64_t group = blockIdx.x / (kGroup * col_tiles), in_group = blockIdx.x % (kGroup * col_tiles);
  const int64_t group_rows = min(int64_t{kGroup}, row_tiles - group * kGroup);
  const int64_t row = (group * kGroup + in_group % group_rows) * kTile, col = in_group / group_rows * kTile;
  Sums sums = {};
  add_segment(stages, {args.a, args.rows, args.depth}, WeightLines<Format, kRows>{args.w}, row, col, sums);
  scale<Format, kRows>(args, col, sums);
  add_segment(stages, {args.a2, args.rows, args.depth2}, PackedRows{args.b2, args.cols, args.depth2}, row,
              col, sums);
  store_tile(args, row, col, sums, stages);
}

}  // namespace
}  // namespace spark

#define SPARK_DEFINE(dtype, Format)                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 2) tensor_##dtype(spark::TensorArgs args) {          \
    spark::product<Format, true>(args);                                                                  \
  }                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 2) tensor_backward_##dtype(spark::TensorArgs args) { \
    spark::product<Format, false>(args);                                                                 \
  }
SPARK_FOR_EACH_WEIGHT(SPARK_DEFINE)
