// tiles.cuh: shared code of GEMM kernels on tensor cores with square tiles of 128 (linear_mma.cu,
// linear_fp4_mma.cu, linear_integer_mma.cu, conv_mma.cu, matmul_mma.cu) or 64 (the last three): one block of
// 8 or 4 warps a tile, tiles of 32 16-bit units along K in stages of shared memory. Trap: 16 bytes of a tile
// are permuted within its lines, so that the eight that ldmatrix reads lie in different banks.
#pragma once

#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/pairs.cuh"

namespace spark {
namespace {

constexpr int kDepth = kDepthUnit;
constexpr int kGroup = 16;  // tiles of rows that share the tiles of columns while those are in the L2 cache
constexpr int kWarpCols = 32, kColBlocks = kWarpCols / 8;  // of a tile, by one warp
template <int kTile>
constexpr int kWarpRows = kTile / 2;
template <int kTile>
constexpr int kRowBlocks = kWarpRows<kTile> / 16;
template <int kTile>
constexpr int kThreads = kTile * 2;
constexpr int kLoads = 2;  // runs of eight that a thread moves

template <int kTile>
using Tile = uint16_t[kTile * kDepth];

// Offset of run `eight` of a line: lines of 32 along K, or of kTile along N.
__device__ int row_offset(int line, int eight) { return line * kDepth + (eight ^ (line >> 1 & 3)) * 8; }
template <int kTile>
__device__ int column_offset(int k, int eight) {
  return k * kTile + (eight ^ (k & 7)) * 8;
}

// Packed lines [lines, padded_depth(depth)]. Lines past the end repeat the last one; their sums are not
// stored.
template <int kTile>
struct PackedRows {
  static constexpr bool kAlongK = true;
  struct Registers {};
  const uint16_t* data;
  int64_t lines, depth;

  __device__ bool starts_copies() const { return true; }
  __device__ void start(Tile<kTile>& tile, int64_t line, int64_t k) const {
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads<kTile>, row = at / 4, eight = at % 4;
      const int64_t source = min(line + row, lines - 1) * padded_depth(depth) + k + eight * 8;
      copy_async(tile + row_offset(row, eight), data + source, true);
    }
  }
  __device__ void fetch(Registers&, int64_t, int64_t) const {}
  __device__ void store(Tile<kTile>&, const Registers&) const {}
};

// A weight, whose rows or columns are the lines; Codes of pairs.cuh.
template <typename Codes, bool kRows, int kTile>
struct WeightLines {
  static constexpr bool kAlongK = kRows;
  using Registers = Codes[kLoads];
  const Weight& weight;

  __device__ bool starts_copies() const {
    return Codes::kStoredAsPairs && weight.cols % 8 == 0 &&
           reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
  }
  // Row and column of run `at` of a tile, and its offset there.
  __device__ int row(int at, int line, int k) const { return kRows ? line + at / 4 : k + at / (kTile / 8); }
  __device__ int col(int at, int line, int k) const {
    return kRows ? k + at % 4 * 8 : line + at % (kTile / 8) * 8;
  }
  __device__ static int offset(int at) {
    return kRows ? row_offset(at / 4, at % 4) : column_offset<kTile>(at / (kTile / 8), at % (kTile / 8));
  }

  __device__ void start(Tile<kTile>& tile, int64_t line, int64_t k) const {
    const auto* data = static_cast<const uint16_t*>(weight.data);
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads<kTile>;
      const int r = row(at, static_cast<int>(line), static_cast<int>(k));
      const int c = col(at, static_cast<int>(line), static_cast<int>(k));
      const bool inside = r < weight.rows && c < weight.cols;
      copy_async(tile + offset(at), inside ? data + r * weight.cols + c : data, inside);
    }
  }
  __device__ void fetch(Registers& registers, int64_t line, int64_t k) const {
    const int rows = static_cast<int>(weight.rows), cols = static_cast<int>(weight.cols);
    for (int i = 0; i < kLoads; ++i) {
      const int at = threadIdx.x + i * kThreads<kTile>;
      const int r = row(at, static_cast<int>(line), static_cast<int>(k));
      const int c = col(at, static_cast<int>(line), static_cast<int>(k));
      registers[i].load(weight, min(r, rows - 1), r < rows ? c : cols);
    }
  }
  __device__ void store(Tile<kTile>& tile, const Registers& registers) const {
    for (int i = 0; i < kLoads; ++i) {
      *reinterpret_cast<Eight*>(tile + offset(threadIdx.x + i * kThreads<kTile>)) = registers[i].decode();
    }
  }
};

template <int kTile, typename Sum = float>
using Sums = Sum[kRowBlocks<kTile>][kColBlocks][4];

// Multiplies pairs of Number; there is nothing else to copy.
template <typename Number>
struct PairStep {
  __device__ void start(int, int64_t) const {}
  __device__ void multiply(int, int, int, int, float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                           uint32_t b1) const {
    mma_16x8x16<Number>(sums, a, b0, b1);
  }
};

// sums += left · rightᵀ of this warp's part of a tile; the lines of a side lie along K or along each other.
template <int kTile, bool kLeftAlongK, bool kRightAlongK, typename Step, typename Sum>
__device__ void multiply(const Tile<kTile>& left, const Tile<kTile>& right, const Step& step, int stage,
                         Sums<kTile, Sum>& sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int top = warp % 2 * kWarpRows<kTile>, first = warp / 2 * kWarpCols;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    uint32_t a[kRowBlocks<kTile>][4], b[kColBlocks / 2][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks<kTile>; ++m) {
      if constexpr (kLeftAlongK) {
        load_matrices(a[m], left + row_offset(top + m * 16 + lane % 16, k * 2 + lane / 16));
      } else {
        const int eight = top / 8 + m * 2 + lane / 8 % 2;
        load_matrices_transposed(a[m], left + column_offset<kTile>(k * 16 + lane % 8 + lane / 16 * 8, eight));
      }
    }
#pragma unroll
    for (int n = 0; n < kColBlocks / 2; ++n) {
      if constexpr (kRightAlongK) {
        const int line = first + n * 16 + lane % 8 + lane / 16 * 8;
        load_matrices(b[n], right + row_offset(line, k * 2 + lane / 8 % 2));
      } else {
        const int eight = first / 8 + n * 2 + lane / 16;
        load_matrices_transposed(b[n], right + column_offset<kTile>(k * 16 + lane % 16, eight));
      }
    }
#pragma unroll
    for (int m = 0; m < kRowBlocks<kTile>; ++m) {
#pragma unroll
      for (int n = 0; n < kColBlocks; ++n) {
        step.multiply(stage, k, m, n, sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

template <int kStages, int kTile>
struct alignas(16) Stages {
  Tile<kTile> left[kStages], right[kStages];
};

// sums += left · rightᵀ for the tile at (row, col); tile t + kStages - 1 is on its way while tile t is
// multiplied. A Step starts copies of what else a tile needs, start(stage, tile), and multiplies.
template <int kStages, int kTile, typename Left, typename Right, typename Step, typename Sum>
__device__ void add_segment(Stages<kStages, kTile>& stages, const Left& left, const Right& right, int64_t row,
                            int64_t col, const Step& step, Sums<kTile, Sum>& sums) {
  const int64_t tiles = padded_depth(left.depth) / kDepth;
  const bool left_copies = left.starts_copies(), right_copies = right.starts_copies();
  typename Left::Registers left_registers;
  typename Right::Registers right_registers;
  const auto start = [&](int64_t tile) {
    if (tile < tiles) {
      const int stage = static_cast<int>(tile % kStages);
      if (left_copies) {
        left.start(stages.left[stage], row, tile * kDepth);
      } else {
        left.fetch(left_registers, row, tile * kDepth);
      }
      step.start(stage, tile);
      if (right_copies) {
        right.start(stages.right[stage], col, tile * kDepth);
      } else {
        right.fetch(right_registers, col, tile * kDepth);
      }
    }
    copy_commit();
  };
  const auto finish = [&](int64_t tile) {
    if (tile >= tiles) return;
    if (!left_copies) left.store(stages.left[tile % kStages], left_registers);
    if (!right_copies) right.store(stages.right[tile % kStages], right_registers);
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
    multiply<kTile, Left::kAlongK, Right::kAlongK>(stages.left[stage], stages.right[stage], step, stage,
                                                   sums);
    finish(tile + kStages - 1);
  }
  copy_wait<0>();
  __syncthreads();  // the stages may be used again
}

template <int kTile>
constexpr int kPitch = kTile + 4;

// Half of the rows of a tile in shared memory.
template <int kTile, typename Sum>
using Half = Sum[kWarpRows<kTile> * kPitch<kTile>];

// store(m, n, sum) for the sums of a tile, by way of shared memory, one half of the rows after the other:
// neighbouring threads store neighbouring columns, and the code of a store is there once. A thread has one
// column. Then finish(row, half) for each half, from its first row on, where other threads may still store.
template <int kTile, typename Sum, typename Shared, typename Store, typename Finish>
__device__ void store_tile(int64_t rows, int64_t cols, int64_t row, int64_t col, const Sums<kTile, Sum>& sums,
                           Shared& shared, const Store& store, const Finish& finish) {
  static_assert(sizeof(Shared) >= sizeof(Half<kTile, Sum>));
  Sum* tile = reinterpret_cast<Sum*>(&shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int half = 0; half < 2; ++half) {
    __syncthreads();
    if (warp % 2 == half) {
#pragma unroll
      for (int i = 0; i < kRowBlocks<kTile> * kColBlocks * 4; ++i) {
        const int m = i / 4 / kColBlocks, n = i / 4 % kColBlocks, at = i % 4;
        const int line = m * 16 + at / 2 * 8 + lane / 4;
        tile[line * kPitch<kTile> + warp / 2 * kWarpCols + n * 8 + lane % 4 * 2 + at % 2] = sums[m][n][at];
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < kWarpRows<kTile> * kTile; i += kThreads<kTile>) {
      const int64_t m = row + half * kWarpRows<kTile> + i / kTile, n = col + i % kTile;
      if (m < rows && n < cols) store(m, n, tile[i / kTile * kPitch<kTile> + i % kTile]);
    }
    finish(row + half * kWarpRows<kTile>, tile);
  }
}

template <int kTile, typename Sum, typename Shared, typename Store>
__device__ void store_tile(int64_t rows, int64_t cols, int64_t row, int64_t col, const Sums<kTile, Sum>& sums,
                           Shared& shared, const Store& store) {
  store_tile<kTile>(rows, cols, row, col, sums, shared, store, [](int64_t, const Sum*) {});
}

// Where tile `block` lies, of fewer than 2^31: 64-bit divisions leave registers in use across the main loop.
struct Corner {
  int64_t row, col;
};

template <int kTile>
__device__ Corner corner(unsigned block, int64_t rows, int64_t cols) {
  const auto tiles_of = [](int64_t lines) { return static_cast<unsigned>((lines + kTile - 1) / kTile); };
  const unsigned row_tiles = tiles_of(rows), col_tiles = tiles_of(cols);
  const unsigned group = block / (kGroup * col_tiles), in_group = block % (kGroup * col_tiles);
  const unsigned group_rows = min(unsigned{kGroup}, row_tiles - group * kGroup);
  return {(int64_t{group} * kGroup + in_group % group_rows) * kTile, int64_t{in_group / group_rows} * kTile};
}

}  // namespace
}  // namespace spark
