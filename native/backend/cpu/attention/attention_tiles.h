// attention_tiles.h: GEMMs of a tile of rows with rows of a head, for attention forward and backward, in the
// block and chunk sizes of the one matrix product (gemm_kernels.h).
#pragma once

#include "backend/cpu/gemm/gemm_kernels.h"
#include "backend/cpu/simd/row_kernels.h"

namespace spark::cpu {

constexpr int64_t kTileRows = 112;  // eight register blocks of AVX-512
constexpr int64_t kBlock = kChunk;  // keys (or queries) that a tile meets at a time
static_assert(kBlock <= kTile);

inline int64_t chunks_of(int64_t length) { return (length + kChunk - 1) / kChunk; }

// Floats of a tile as the left side of a product along `depth`, and of one of sums with `cols` columns.
inline int64_t left_floats(int64_t depth) { return chunks_of(depth) * kTileRows * kLine; }
inline int64_t sums_floats(int64_t cols) { return chunks_of(cols) * kTileRows * kTile; }
constexpr int64_t kPanelFloats = kPanelRows * kLine;

inline const float* head_of(const float* data, const HeadStrides& strides, int64_t batch, int64_t head) {
  return data + batch * strides.batch + head * strides.head;
}

// Writes row `row` of a left side: chunk by chunk of the depth.
void put_row(const float* from, int64_t depth, int64_t row, float* left);
// The same for rows [0, rows) from rows that lie `step` apart.
void put_rows(const float* from, int64_t step, int64_t rows, int64_t depth, float* left);

// Rows [first, first + count) of a head, count <= kBlock: element (j, e) is data[(first + j) · step + e],
// e < width.
struct HeadRows {
  const float* data;
  int64_t step, first, count, width;
};

// sums[r * kTile + j] = Σ_e left(r, e) · right(j, e) for r < rows.
void multiply_rows(const float* left, int64_t rows, const HeadRows& right, float* panel, float* sums);

// sums(r, e) += Σ_j left[r * kLine + j] · right(j, e) for r < rows. The columns of sums lie in tiles of
// kTile.
void multiply_columns(const float* left, int64_t rows, const HeadRows& right, float* panel, float* sums);

// Element (r, e) of such sums.
inline float* sums_at(float* sums, int64_t row, int64_t chunk) {
  return sums + chunk * kTileRows * kTile + row * kTile;
}

// values[j] = values[j] · scale, with the soft cap of AttentionArgs. slopes, when given, become its
// derivative.
void scale_scores(const AttentionArgs& args, int64_t count, float* values, float* slopes);

}  // namespace spark::cpu
