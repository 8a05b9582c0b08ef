// gemm_kernels.h: the matrix product's share of CpuKernels: decode, pack, multiply.
#pragma once

#include "backend/cpu/gemm/epilogue.h"
#include "backend/cpu/gemm/operand.h"
#include "backend/integer_rows.h"

namespace spark::cpu {

constexpr int64_t kChunk = 256;         // length of K over which a sum is one chain of additions
constexpr int64_t kLine = kChunk + 16;  // a power of two would put all lines into the same cache sets
constexpr int64_t kSmallM = 4;          // up to so many rows do without packing the right side
constexpr int64_t kSmallN = 64;         // lines that few rows are multiplied by at once, when they are packed
constexpr int64_t kVector = 16;         // floats of a line of the cache, and of the longest vectors
constexpr int64_t kTile = 256;          // rows and columns of a tile at most

// Values of the element of NVFP4.
constexpr float kE2M1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// A tile of a weight W and of B·A, rank by rank.
struct LowRankTile {
  int64_t rows, cols, rank;  // rows <= kPanelRows
  const float* weight;       // [rows, kLine]; as many as 16 floats behind a row are read
  const float* b;            // [rows, rank], scaled
  const float* a;            // [rank, a_stride]; as weight
  int64_t a_stride;
  const float* gain;  // [rows]; null: 1
  float* to;          // [rows, to_stride]
  int64_t to_stride;
  const char* next;   // what is read for the next tile and can be asked for now, `next_bits` for each element
  int64_t next_bits;  // 0: nothing
  bool past_cache;    // rows of `to` begin at multiples of 64 bytes and will not be read from a cache
};

// The left side of a product along a chunk of K. Element (i, k) is data[i * kLine + k], or, where `panel` is
// not 0, data[i / kPanelRows * panel + k * kPanelRows + i % kPanelRows]: in panels of a weight, so far apart.
struct Left {
  const float* data;
  int64_t panel;
};

// Rows of an activation as signed bytes (backend/integer_rows.h) in dot-product groups: scales of
// kIntegerCols columns, and the sums of the bytes of 16 or 32 (run_cols of the weight).
struct IntegerRows {
  int64_t count;
  const uint32_t* groups;  // [count, stride]
  int64_t stride;
  const float* scales;
  int64_t scale_stride;
  const int32_t* sums;
  int64_t sum_stride;
};

struct GemmKernels {
  // to[i * kLine + j] = from(line + i, k + j) for i < lines <= kTile, j < count <= kChunk. Where the lines
  // are rows of a weight, k is a multiple of 16, line of kPanelRows if it is packed; its columns are no left
  // side.
  void (*pack_rows)(const Operand& from, const Block& block, float* to);
  // to[j * kPanelRows + i] = from(line + i, k + j) for i < lines <= kPanelRows, j < count <= kChunk, which is
  // rounded up to an even number for packed bf16. to: kPanelRows * kLine floats.
  void (*pack_panel)(const Operand& from, const Block& block, float* to);
  // from(line + i, k + j) as a left side, of which `to` has kTile * kLine floats: rows of a packed weight in
  // their panels, packed f32 where it is, all others as pack_rows does.
  Left (*pack_left)(const Operand& from, const Block& block, float* to);
  // sums[i * kTile + j] += Σ left(i, k') · b(line + j, k + k') for i < m <= kTile, j < lines <= kPanelRows
  // (kSmallN for m <= kSmallM and packed rows) and k' < count <= kChunk: one chain of multiplications and
  // additions (fused, but for `plain`) with rising k' that starts at 0. The rest of the kPanelRows columns
  // holds anything afterwards. buffer: kPanelRows * kLine floats.
  void (*multiply)(const Left& left, int64_t m, const Operand& b, const Block& block, float* buffer,
                   float* sums);
  // As multiply, of the last chunk: adds its sums to `sums` (null: 0), which stay as they are, and stores the
  // results through `to`, except for activations that are no bounds.
  void (*multiply_store)(const Left& left, int64_t m, const Operand& b, const Block& block, float* buffer,
                         const float* sums, const Epilogue& to);
  // Stores rows of sums, `pitch` elements apart, through `to`, with the same exception.
  void (*store_rows)(const float* sums, int64_t pitch, int64_t rows, int64_t cols, const Epilogue& to);
  // A row as those of IntegerRows; cols is a multiple of kIntegerCols, run 16 or 32.
  void (*round_integers)(const float* x, int64_t cols, int64_t run, uint32_t* groups, float* scales,
                         int32_t* sums);
  // to = gain ∘ (W + B·A), the sums of B·A as those of multiply.
  void (*add_low_rank)(const LowRankTile& tile);
};

}  // namespace spark::cpu
