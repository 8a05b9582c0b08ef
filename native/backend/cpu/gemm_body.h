// gemm_body.h: the decode, pack and multiply of a matrix product, for any vector width. Each gemm_<isa>.cc
// includes it once, inside an unnamed namespace (core/cpu_isa.h says why), after defining
//   kWidth, Vec, Bits   floats in a vector, that vector, and the same of uint32_t
//   kRows, kVecs        the block of sums that stays in registers: kRows lines by kVecs vectors
//   multiply_add        a * b + sum on vectors, fused where the instruction set can
//   stream              stores a vector at a multiple of its size, past the cache where the instruction set
//   can transpose           of kWidth vectors, in place evens               elements 0, 2, 4 … of a vector
//   that goes on, but for its first element, in a second load_codes          kWidth codes of 8 or 16 bits,
//   widened load_e2m1           the values of kWidth codes of 4 bits, low ones first lookup_e2m1         the
//   values of the low 4 bits
inline Vec load(const float* from) {
  Vec vec;
  __builtin_memcpy(&vec, from, sizeof(vec));
  return vec;
}

inline void store(float* to, Vec vec) { __builtin_memcpy(to, &vec, sizeof(vec)); }

inline Vec splat(float value) { return value - Vec{}; }  // value + 0 would make 0 of -0

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Asks for the bytes behind these: a panel's rows go on there in the next chunk, too far apart for the
// hardware to foresee.
inline void prefetch_next(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(static_cast<const char*>(from) + bytes + i, 0, 2);
}

inline void copy(const float* from, int64_t count, float* to) {
  prefetch_next(from, count * sizeof(float));
  int64_t j = 0;
  for (; j + kWidth <= count; j += kWidth) store(to + j, load(from + j));
  for (; j < count; ++j) to[j] = from[j];
}

#include "backend/cpu/gemm_decode.h"
#include "backend/cpu/gemm_panels.h"

// --- pack: an operand is read along its memory, by rows (outer) of its row-major matrix ---

void read(const Operand& from, int64_t outer, int64_t inner, int64_t count, float* to) {
  if (from.weight) return decode(*from.weight, outer, inner, count, to);
  const int64_t first = outer * from.stride + inner;
  const float* data = from.data + first;
  if (from.mask) {
    for (int64_t j = 0; j < count; ++j) to[j] = data[j] * from.mask[first + j];
  } else if (from.k_scale && from.columns) {
    for (int64_t j = 0; j < count; ++j) to[j] = data[j] * from.k_scale[outer];
  } else if (from.k_scale) {
    for (int64_t j = 0; j < count; ++j) to[j] = data[j] * from.k_scale[inner + j];
  } else {
    copy(data, count, to);
  }
}

// to[i * kStride + j] = element (row + i, position + j). Writes up to kWidth floats behind a row, which the
// next row overwrites.
template <int64_t kStride>
void pack_patches(const Patches& from, int64_t row, int64_t rows, int64_t position, int64_t count,
                  float* to) {
  int64_t at[4];
  for (int axis = 3; axis >= 0; --axis) {
    at[axis] = position % from.size[axis];
    position /= from.size[axis];
  }
  // Positions that lie behind each other are copied by vectors, without slack the rest of them one by one.
  int64_t vector_from[kChunk + kChunk / kWidth], vector_to[kChunk + kChunk / kWidth], vectors = 0;
  int64_t single_from[kChunk], single_to[kChunk], singles = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t first = at[0] * from.pitch[0] + at[1] * from.pitch[1] + at[2] * from.pitch[2] + at[3];
    const int64_t length = smaller(from.size[3] - at[3], count - done);
    int64_t j = 0;
    for (; from.slack ? j < length : j + kWidth <= length; j += kWidth, ++vectors) {
      vector_from[vectors] = first + j;
      vector_to[vectors] = done + j;
    }
    for (; j < length; ++j, ++singles) {
      single_from[singles] = first + j;
      single_to[singles] = done + j;
    }
    done += length;
    at[3] = 0;
    for (int axis = 2; axis >= 0 && ++at[axis] == from.size[axis]; --axis) at[axis] = 0;
  }
  for (int64_t i = 0; i < rows; ++i, to += kStride) {
    const float* data = from.data + from.offset[row + i];
    for (int64_t v = 0; v < vectors; ++v) store(to + vector_to[v], load(data + vector_from[v]));
    for (int64_t v = 0; v < singles; ++v) to[single_to[v]] = data[single_from[v]];
  }
}

// to[j * kStride + i] = from[i * stride + j] for i < rows <= kWidth, j < count. The rest of a vector in `to`
// is filled with copies of the last row.
template <int64_t kStride>
void transpose_rows(const float* from, int64_t stride, int64_t rows, int64_t count, float* to) {
  const float* row[kWidth];
  for (int64_t i = 0; i < kWidth; ++i) row[i] = from + smaller(i, rows - 1) * stride;
  int64_t j = 0;
  for (; j + kWidth <= count; j += kWidth) {
    Vec block[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) block[i] = load(row[i] + j);
    transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) store(to + (j + i) * kStride, block[i]);
  }
  for (; j < count; ++j) {
    for (int64_t i = 0; i < rows; ++i) to[j * kStride + i] = row[i][j];
  }
}

// to[i * kStride + j] = element (outer + i, inner + j)
template <int64_t kStride>
void pack_straight(const Operand& from, int64_t outer, int64_t outers, int64_t inner, int64_t count,
                   float* to) {
  if (from.patches) return pack_patches<kStride>(*from.patches, outer, outers, inner, count, to);
  for (int64_t i = 0; i < outers; ++i) read(from, outer + i, inner, count, to + i * kStride);
}

// to[j * kStride + i] = element (outer + i, inner + j)
template <int64_t kStride>
void pack_transposed(const Operand& from, int64_t outer, int64_t outers, int64_t inner, int64_t count,
                     float* to) {
  const bool in_place = !from.weight && !from.mask && !from.k_scale && !from.patches;
  float buffer[kWidth * kLine];
  for (int64_t i = 0; i < outers; i += kWidth) {
    const int64_t rows = smaller(kWidth, outers - i);
    if (in_place) {
      transpose_rows<kStride>(from.data + (outer + i) * from.stride + inner, from.stride, rows, count,
                              to + i);
      continue;
    }
    pack_straight<kLine>(from, outer + i, rows, inner, count, buffer);
    transpose_rows<kStride>(buffer, kLine, rows, count, to + i);
  }
}

// to[i * kLine + j] = element (line + i, k + j) of a packed weight
void pack_panels(const Weight& weight, int64_t line, int64_t lines, int64_t k, int64_t count, float* to) {
  float decoded[kPanelRows * kLine];
  for (int64_t i = 0; i < lines; i += kPanelRows) {
    const int64_t index = (line + i) / kPanelRows;
    const float* panel = decoded;
    if (weight.dtype == DType::kF32) {
      panel = static_cast<const float*>(weight.data) + (index * weight.cols + k) * kPanelRows;
    } else {
      decode_panel(weight, index, k, count, decoded);
    }
    for (int64_t j = 0; j < count; j += kWidth) {
      transpose_rows<kLine>(panel + j * kPanelRows, kPanelRows, smaller(kWidth, count - j),
                            smaller(kPanelRows, lines - i), to + i * kLine + j);
    }
  }
}

// to[j * kSliver + i] = element (k + j, line + i) of a packed weight. k is that of a panel's first row.
void pack_panel_columns(const Weight& weight, int64_t line, int64_t lines, int64_t k, int64_t count,
                        float* to) {
  float panel[kPanelRows * (kSliver + 1)];
  for (int64_t j = 0; j < count; j += kPanelRows) {
    decode_panel(weight, (k + j) / kPanelRows, line, lines, panel);
    for (int64_t i = 0; i < lines; i += kWidth) {
      transpose_rows<kSliver>(panel + i * kPanelRows, kPanelRows, smaller(kWidth, lines - i),
                              smaller(kPanelRows, count - j), to + j * kSliver + i);
    }
  }
}

bool is_packed(const Operand& operand) { return operand.weight && operand.weight->packed; }

void pack_rows(const Operand& from, int64_t line, int64_t lines, int64_t k, int64_t count, float* to) {
  if (is_packed(from)) return pack_panels(*from.weight, line, lines, k, count, to);
  if (from.columns) return pack_transposed<kLine>(from, k, count, line, lines, to);
  pack_straight<kLine>(from, line, lines, k, count, to);
}

// to[j * kSliver + i] = from(line + i, k + j)
void pack_sliver(const Operand& from, int64_t line, int64_t lines, int64_t k, int64_t count, float* to) {
  if (is_packed(from)) {
    if (from.columns) return pack_panel_columns(*from.weight, line, lines, k, count, to);
    return decode_panel(*from.weight, line / kPanelRows, k, count, to);
  }
  if (from.columns) return pack_straight<kSliver>(from, k, count, line, lines, to);
  pack_transposed<kSliver>(from, line, lines, k, count, to);
}

// --- multiply ---

template <int M, int N>
void multiply_block(const float* rows, const float* sliver, int64_t count, float* sums) {
  Vec total[M][N] = {};
#pragma GCC unroll 2
  for (int64_t k = 0; k < count; ++k) {
    Vec right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = load(sliver + k * kSliver + n * kWidth);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Vec left = splat(rows[m * kLine + k]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) total[m][n] = multiply_add(left, right[n], total[m][n]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      float* sum = sums + m * kTile + n * kWidth;
      store(sum, load(sum) + total[m][n]);
    }
  }
}

template <int M, int N>
void multiply_cols(const float* rows, const float* sliver, int64_t vecs, int64_t count, float* sums) {
  for (; vecs >= N; vecs -= N, sliver += N * kWidth, sums += N * kWidth) {
    multiply_block<M, N>(rows, sliver, count, sums);
  }
  if constexpr (N > 1) {
    if (vecs > 0) multiply_cols<M, N - 1>(rows, sliver, vecs, count, sums);
  }
}

template <int M>
void multiply_rows(int64_t m, const float* rows, const float* sliver, int64_t vecs, int64_t count,
                   float* sums) {
  if (m == M) return multiply_cols<M, kVecs>(rows, sliver, vecs, count, sums);
  if constexpr (M > 1) multiply_rows<M - 1>(m, rows, sliver, vecs, count, sums);
}

// Rows are shared out evenly: a last block of one row would cost as much time as a full one.
void multiply_sliver(const float* rows, const float* sliver, int64_t m, int64_t n, int64_t count,
                     float* sums) {
  const int64_t vecs = (n + kWidth - 1) / kWidth;
  for (int64_t blocks = (m + kRows - 1) / kRows; blocks > 0; --blocks) {
    const int64_t block = (m + blocks - 1) / blocks;
    multiply_rows<kRows>(block, rows, sliver, vecs, count, sums);
    rows += block * kLine;
    sums += block * kTile;
    m -= block;
  }
}

// --- few rows: lines of the right side are transposed in registers instead of being packed across ---

// total[m][n] += Σ rows[m * kLine + i] · block[i]
template <int M>
inline void add_terms(const float* rows, const Vec (&block)[kWidth], int64_t terms, Vec (&total)[M][2],
                      int n) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < terms; ++i) {
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) total[m][n] = multiply_add(splat(rows[m * kLine + i]), block[i], total[m][n]);
  }
}

// M rows by two vectors of lines. Beyond `count` and beyond the last line the panel holds anything.
template <int M>
void multiply_lines(const float* rows, const float* lines, int64_t count, float* sums) {
  Vec total[M][2] = {};
  for (int64_t k = 0; k < count; k += kWidth) {
#pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) {
      Vec block[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) block[i] = load(lines + (n * kWidth + i) * kLine + k);
      transpose(block);
      if (count - k >= kWidth) {
        add_terms<M>(rows + k, block, kWidth, total, n);
      } else {
        add_terms<M>(rows + k, block, count - k, total, n);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < 2; ++n) {
      float* sum = sums + m * kTile + n * kWidth;
      store(sum, load(sum) + total[m][n]);
    }
  }
}

template <int M>
void multiply_few(int64_t m, const float* rows, const float* lines, int64_t count, float* sums) {
  if (m == M) return multiply_lines<M>(rows, lines, count, sums);
  if constexpr (M > 1) multiply_few<M - 1>(m, rows, lines, count, sums);
}

void multiply(const float* rows, int64_t m, const Operand& b, int64_t line, int64_t lines, int64_t k,
              int64_t count, float* buffer, float* sums) {
  if (is_packed(b) && !b.columns) {
    const int64_t panel = line / kPanelRows;
    if (m <= kFewRows) return multiply_panels(rows, m, *b.weight, panel, lines, k, count, sums);
    if (b.weight->dtype == DType::kF32) {
      const auto* data = static_cast<const float*>(b.weight->data);
      return multiply_sliver(rows, data + (panel * b.weight->cols + k) * kPanelRows, m, lines, count, sums);
    }
  } else if (m <= kFewRows && !b.columns) {
    pack_straight<kLine>(b, line, lines, k, count, buffer);
    for (int64_t n = 0; n < lines; n += 2 * kWidth) {
      multiply_few<kFewRows>(m, rows, buffer + n * kLine, count, sums + n);
    }
    return;
  }
  pack_sliver(b, line, lines, k, count, buffer);
  multiply_sliver(rows, buffer, m, lines, count, sums);
}

#include "backend/cpu/correlate_body.h"
#include "backend/cpu/low_rank_body.h"
