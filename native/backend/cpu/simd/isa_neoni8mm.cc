// isa_neoni8mm.cc: arm64 BF16 and I8MM: bfmmla and usmmla, which add the products of two rows and two
// columns, two dot-product groups long, to a tile of 2 by 2 sums. bfmmla adds one group after the other, as
// two bfdot do.
#include <arm_neon.h>

#include "backend/block_panels.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/float_formats.h"

namespace spark::cpu {
namespace {

namespace codes {

#include "backend/cpu/simd/vec4_neon.h"
//
#include "backend/cpu/simd/vec_memory.h"
//
#include "backend/cpu/gemm/block_groups.h"

constexpr int kCodeRows = 4, kCodeVecs = 2;

template <bool>
inline Bits add_products(Bits sum, Bits bytes, uint32_t row) {
  return (Bits)vusdotq_s32((int32x4_t)sum, (uint8x16_t)bytes, (int8x16_t)(Bits{} + row));
}

#include "backend/cpu/gemm/multiply_codes.h"

}  // namespace codes

constexpr int kRowPairs = 4, kColPairs = 4;  // of the block of tiles that stays in registers
constexpr int kCols = 2 * kColPairs;

// multiply_add adds to a tile, by_rows puts it into row-major order.
struct Pairs {
  using Tile = float32x4_t;
  static Tile multiply_add(Tile tile, uint32x4_t rows, uint32x4_t cols) {
    return vbfmmlaq_f32(tile, vreinterpretq_bf16_u32(rows), vreinterpretq_bf16_u32(cols));
  }
  static Tile by_rows(Tile tile) { return tile; }
};

struct Bytes {
  using Tile = uint32x4_t;
  static Tile multiply_add(Tile tile, uint32x4_t rows, uint32x4_t cols) {
    return vreinterpretq_u32_s32(
        vusmmlaq_s32(vreinterpretq_s32_u32(tile), vreinterpretq_u8_u32(rows), vreinterpretq_s8_u32(cols)));
  }
  static Tile by_rows(Tile tile) { return tile; }
};

// The unsigned factor comes first, so that tiles are transposed.
struct SignedBytes {
  using Tile = uint32x4_t;
  static Tile multiply_add(Tile tile, uint32x4_t rows, uint32x4_t cols) {
    return Bytes::multiply_add(tile, cols, rows);
  }
  static Tile by_rows(Tile tile) { return __builtin_shufflevector(tile, tile, 0, 2, 1, 3); }
};

template <typename Vec, typename Sum>
void add(Vec values, Sum* sums) {
  Vec total;
  __builtin_memcpy(&total, sums, sizeof(total));
  total += values;
  __builtin_memcpy(sums, &total, sizeof(total));
}

// Adds the products of one group, or of two, from `group` on.
template <typename Kind, int P>
inline void add_products(const uint32_t* const (&row)[2 * P], const uint32_t* panel, int64_t group, bool two,
                         typename Kind::Tile (&tile)[P][kColPairs]) {
  uint32x4_t cols[kColPairs];
#pragma GCC unroll 2
  for (int v = 0; v < kColPairs / 2; ++v) {
    const uint32_t* from = panel + group * kPanelRows + 4 * v;
    const uint32x4_t first = vld1q_u32(from), second = two ? vld1q_u32(from + kPanelRows) : vdupq_n_u32(0);
    cols[2 * v] = vzip1q_u32(first, second);
    cols[2 * v + 1] = vzip2q_u32(first, second);
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    // A row goes on with zeros beyond its last group.
    const uint32x4_t rows = vcombine_u32(vld1_u32(row[2 * p] + group), vld1_u32(row[2 * p + 1] + group));
#pragma GCC unroll 4
    for (int c = 0; c < kColPairs; ++c) tile[p][c] = Kind::multiply_add(tile[p][c], rows, cols[c]);
  }
}

// m rows, 2 P or one less, by kCols columns.
template <typename Kind, typename Sum, int P>
void multiply_block(int64_t m, const uint32_t* rows, int64_t stride, const uint32_t* panel, int64_t groups,
                    Sum* sums) {
  const uint32_t* row[2 * P];
  for (int i = 0; i < 2 * P; ++i) row[i] = rows + (i < m ? i : m - 1) * stride;
  typename Kind::Tile tile[P][kColPairs] = {};
  int64_t group = 0;
  for (; group + 2 <= groups; group += 2) add_products<Kind, P>(row, panel, group, true, tile);
  if (group < groups) add_products<Kind, P>(row, panel, group, false, tile);
  for (int p = 0; p < P; ++p) {
    for (int c = 0; c < kColPairs; c += 2) {
      const auto left = Kind::by_rows(tile[p][c]), right = Kind::by_rows(tile[p][c + 1]);
      Sum* to = sums + 2 * p * kTile + 2 * c;
      add(__builtin_shufflevector(left, right, 0, 1, 4, 5), to);
      if (2 * p + 1 < m) add(__builtin_shufflevector(left, right, 2, 3, 6, 7), to + kTile);
    }
  }
}

template <typename Kind, typename Sum, int P = kRowPairs>
void multiply_rows(int64_t m, const uint32_t* rows, int64_t stride, const uint32_t* panel, int64_t cols,
                   int64_t groups, Sum* sums) {
  if constexpr (P > 1) {
    if (m <= 2 * (P - 1)) {
      return multiply_rows<Kind, Sum, P - 1>(m, rows, stride, panel, cols, groups, sums);
    }
  }
  for (int64_t col = 0; col < cols; col += kCols) {
    multiply_block<Kind, Sum, P>(m, rows, stride, panel + col, groups, sums + col);
  }
}

template <typename Kind, typename Sum>
void multiply_dot_groups(const uint32_t* rows, int64_t stride, int64_t m, const uint32_t* panel, int64_t cols,
                         int64_t groups, Sum* sums) {
  for (int64_t i = 0; i < m; i += 2 * kRowPairs) {
    const int64_t some = m - i < 2 * kRowPairs ? m - i : 2 * kRowPairs;
    multiply_rows<Kind, Sum>(some, rows + i * stride, stride, panel, cols, groups, sums + i * kTile);
  }
}

}  // namespace

const DotKernels neoni8mm_dot_kernels = {
    .bf16 = multiply_dot_groups<Pairs, float>,
    .codes = codes::multiply_codes,
    .bytes = multiply_dot_groups<Bytes, int32_t>,
    .signed_bytes = multiply_dot_groups<SignedBytes, int32_t>,
};

}  // namespace spark::cpu
