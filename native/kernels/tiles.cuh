// tiles.cuh: what products on tensor cores share that are formed in tiles of 128 x 128 (tensor.cu,
// tensor_fp4.cu): one block of 8 warps a tile, tiles of 32 16-bit units along K in stages of shared memory.
// Trap: 16 bytes of a tile are permuted within its lines, so that the eight that ldmatrix reads lie in
// different banks.
#pragma once

#include "kernels/epilogue.cuh"
#include "kernels/pairs.cuh"

namespace spark {
namespace {

constexpr int kTile = 128, kDepth = kDepthUnit;
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

// A weight, whose rows or columns are the lines; Codes of pairs.cuh.
template <typename Codes, bool kRows>
struct WeightLines {
  static constexpr bool kAlongK = kRows;
  using Registers = Codes;
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
template <bool kAlongK, typename Step>
__device__ void multiply(const Tile& left, const Tile& right, const Step& step, int stage, Sums& sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int top = warp % 2 * kWarpRows, first = warp / 2 * kWarpCols;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    uint32_t a[kRowBlocks][4], b[kColBlocks / 2][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
      load_matrices(a[m], left + row_place(top + m * 16 + lane % 16, k * 2 + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < kColBlocks / 2; ++n) {
      if constexpr (kAlongK) {
        const int line = first + n * 16 + lane % 8 + lane / 16 * 8;
        load_matrices(b[n], right + row_place(line, k * 2 + lane / 8 % 2));
      } else {
        const int eight = first / 8 + n * 2 + lane / 16;
        load_matrices_transposed(b[n], right + column_place(k * 16 + lane % 16, eight));
      }
    }
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kColBlocks; ++n) {
        step.multiply(stage, k, m, n, sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

template <int kStages>
struct alignas(16) Stages {
  Tile left[kStages], right[kStages];
};

// sums += left · rightᵀ for the tile at (row, col); tile t + kStages - 1 is on its way while tile t is
// multiplied. A Step starts copies of what else a tile needs, start(stage, tile), and multiplies.
template <int kStages, typename Right, typename Step>
__device__ void add_segment(Stages<kStages>& stages, const PackedRows& left, const Right& right, int64_t row,
                            int64_t col, const Step& step, Sums& sums) {
  const int64_t tiles = padded_depth(left.depth) / kDepth;
  const bool copies = right.starts_copies();
  typename Right::Registers registers[kLoads];
  const auto start = [&](int64_t tile) {
    if (tile < tiles) {
      const int stage = static_cast<int>(tile % kStages);
      left.start(stages.left[stage], row, tile * kDepth);
      step.start(stage, tile);
      if (copies) {
        right.start(stages.right[stage], col, tile * kDepth);
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
    const int stage = static_cast<int>(tile % kStages);
    multiply<Right::kAlongK>(stages.left[stage], stages.right[stage], step, stage, sums);
    finish(tile + kStages - 1);
  }
  copy_wait<0>();
  __syncthreads();  // the stages may be used again
}

// By way of shared memory, one half of the rows after the other: neighbouring threads store neighbouring
// columns, and the code of a store is there once.
template <typename Shared>
__device__ void store_tile(const Epilogue& epilogue, int64_t rows, int64_t cols, int64_t row, int64_t col,
                           const Sums& sums, Shared& shared) {
  constexpr int kPitch = kTile + 4;
  static_assert(sizeof(Shared) >= kWarpRows * kPitch * sizeof(float));
  float* tile = reinterpret_cast<float*>(&shared);
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
      if (m < rows && n < cols) store(epilogue, m, n, tile[i / kTile * kPitch + i % kTile]);
    }
  }
}

// Where the tile of this block lies.
struct Corner {
  int64_t row, col;
};

__device__ Corner corner(int64_t rows, int64_t cols) {
  const int64_t row_tiles = (rows + kTile - 1) / kTile, col_tiles = (cols + kTile - 1) / kTile;
  const int64_t group = blockIdx.x / (kGroup * col_tiles), in_group = blockIdx.x % (kGroup * col_tiles);
  const int64_t group_rows = min(int64_t{kGroup}, row_tiles - group * kGroup);
  return {(group * kGroup + in_group % group_rows) * kTile, in_group / group_rows * kTile};
}

}  // namespace
}  // namespace spark
