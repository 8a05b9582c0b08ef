// gemm_body.h: the decode, pack and multiply of a matrix product, for any vector width. Each base unit of an
// instruction set (simd/isa_body.h) includes it once, inside its unnamed namespace, after defining
//   kWidth, Vec, Bits   floats in a vector, that vector, and the same of uint32_t
//   kRows, kVecs        the block of sums that stays in registers: kRows lines by kVecs vectors
//   multiply_add        a * b + sum on vectors, fused where the instruction set can
//   larger              of two vectors, the first one where both are equal, NaN where one is
//   at_least            where the elements of a vector are less than those of a second, these; NaN and -0
//   stay stream              stores a vector at a multiple of its size, past the cache where that can be
//   transpose           of kWidth vectors, in place
//   evens               elements 0, 2, 4 … of a vector that goes on, but for its first element, in a second
//   Mask                some elements of a vector: mask_between(begin, end), both from 0 to kWidth
//   load_masked         these elements, with zeros around them; no others are read
//   order_before_reads         a vector is computed, and nothing is read ahead of that
//   load_codes          kWidth codes of 8 or 16 bits, widened
//   load_halves         the values of kWidth codes of f16
//   load_e2m1           the values of kWidth codes of 4 bits, low ones first
//   lookup_e2m1         the values of the low 4 bits
//   lookup              numbers of a table by the low 4 bits
//   lookup_bytes        bytes of a table of 16 by bytes below 16
//   load_part           fewer than kWidth floats, with zeros behind them
//   store_part          fewer than kWidth floats
#include "backend/cpu/simd/vec_memory.h"

// The first `count` elements of a vector, 0 in the place of the others; all of them where it has no more.
inline Vec load_some(const float* from, int64_t count) {
  return count < kWidth ? load_part(from, count) : load(from);
}

inline void store_some(float* to, Vec values, int64_t count) {
  if (count < kWidth) return store_part(to, values, count);
  store(to, values);
}

inline Vec bounded(Vec values, Bounds bounds) {
  return at_most(at_least(values, splat(bounds.least)), splat(bounds.most));
}

// The numbers of all lanes, for shuffles.
template <int... kLanes>
struct Lanes {};

template <int kCount, int... kLanes>
struct CountLanes : CountLanes<kCount - 1, kCount - 1, kLanes...> {};

template <int... kLanes>
struct CountLanes<0, kLanes...> {
  using Type = Lanes<kLanes...>;
};

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

#include "backend/cpu/gemm/gemm_decode.h"
//
#include "backend/cpu/gemm/block_groups.h"
//
#include "backend/cpu/gemm/gemm_blocks.h"
//
#include "backend/cpu/gemm/round_integers.h"
//
#include "backend/cpu/gemm/gemm_panels.h"

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

constexpr int kMaxRuns = 6;

// to[i * kStride + vector_to[v]] = the vector at data[offset[i] + vector_from[v]] for v < vectors <= V
template <int V, int64_t kStride>
void copy_runs(int64_t vectors, const float* data, const int64_t* offset, int64_t rows,
               const int64_t* vector_from, const int64_t* vector_to, float* to) {
  if (vectors < V) {
    if constexpr (V > 1) copy_runs<V - 1, kStride>(vectors, data, offset, rows, vector_from, vector_to, to);
    return;
  }
  int64_t first[V], target[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    first[v] = vector_from[v];
    target[v] = vector_to[v];
  }
  for (int64_t i = 0; i < rows; ++i, to += kStride) {
    const float* from = data + offset[i];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(to + target[v], load(from + first[v]));
  }
}

// Asks for as many floats as a panel has columns.
inline void prefetch_panel(const float* from) {
  __builtin_prefetch(from);
  __builtin_prefetch(from + kPanelRows / 2);
}

// As pack_patches(), of whole panels of the first line.
inline void copy_panels(const Patches& from, int64_t row, int64_t rows, int64_t position, float* to) {
  for (int64_t i = 0; i < rows; ++i, to += kPanelRows) {
    const float* data = from.data + from.offset[row + i] + position;
    prefetch_panel(data + kPanelRows);
#pragma GCC unroll 8
    for (int64_t j = 0; j < kPanelRows; j += kWidth) store(to + j, load(data + j));
  }
}

// to[i * kStride + j] = element (row + i, position + j). Writes up to kWidth floats behind a row, which the
// next row overwrites.
template <int64_t kStride>
void pack_patches(const Patches& from, int64_t row, int64_t rows, int64_t position, int64_t count,
                  float* to) {
  if (kStride == kPanelRows && count == kPanelRows && position + count <= from.size[3]) {
    return copy_panels(from, row, rows, position, to);
  }
  int64_t at[4];
  for (int axis = 3; axis >= 0; --axis) {
    at[axis] = position % from.size[axis];
    position /= from.size[axis];
  }
  // Positions that lie behind each other are copied by vectors, without slack the last of them by a part of
  // one.
  int64_t vector_from[kChunk + kChunk / kWidth], vector_to[kChunk + kChunk / kWidth], vectors = 0;
  int64_t part_from[kChunk], part_to[kChunk], part_count[kChunk], parts = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t first = at[0] * from.pitch[0] + at[1] * from.pitch[1] + at[2] * from.pitch[2] + at[3];
    const int64_t length = smaller(from.size[3] - at[3], count - done);
    int64_t j = 0;
    for (; from.slack ? j < length : j + kWidth <= length; j += kWidth, ++vectors) {
      vector_from[vectors] = first + j;
      vector_to[vectors] = done + j;
    }
    if (j < length) {
      part_from[parts] = first + j;
      part_to[parts] = done + j;
      part_count[parts++] = length - j;
    }
    done += length;
    at[3] = 0;
    for (int axis = 2; axis >= 0 && ++at[axis] == from.size[axis]; --axis) at[axis] = 0;
  }
  const int64_t* offset = from.offset + row;
  if (parts == 0 && vectors <= kMaxRuns) {
    return copy_runs<kMaxRuns, kStride>(vectors, from.data, offset, rows, vector_from, vector_to, to);
  }
  for (int64_t i = 0; i < rows; ++i, to += kStride) {
    const float* data = from.data + offset[i];
    for (int64_t v = 0; v < vectors; ++v) store(to + vector_to[v], load(data + vector_from[v]));
    for (int64_t v = 0; v < parts; ++v) {
      store_part(to + part_to[v], load_part(data + part_from[v], part_count[v]), part_count[v]);
    }
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
  if (j == count) return;
  Vec block[kWidth];
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) block[i] = load_part(row[i] + j, count - j);
  transpose(block);
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    if (i < count - j) store(to + (j + i) * kStride, block[i]);
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

// to[j * kPanelRows + i] = element (k + j, line + i) of a packed weight. k is that of a panel's first row.
void pack_panel_columns(const Weight& weight, int64_t line, int64_t lines, int64_t k, int64_t count,
                        float* to) {
  float panel[kPanelRows * (kPanelRows + 1)];
  for (int64_t j = 0; j < count; j += kPanelRows) {
    decode_panel(weight, (k + j) / kPanelRows, line, lines, panel);
    for (int64_t i = 0; i < lines; i += kWidth) {
      transpose_rows<kPanelRows>(panel + i * kPanelRows, kPanelRows, smaller(kWidth, lines - i),
                                 smaller(kPanelRows, count - j), to + j * kPanelRows + i);
    }
  }
}

bool is_packed(const Operand& operand) { return operand.weight && operand.weight->packed; }

void pack_rows(const Operand& from, const Block& block, float* to) {
  const auto& [line, lines, k, count] = block;
  if (is_packed(from)) return pack_panels(*from.weight, line, lines, k, count, to);
  if (from.columns) return pack_transposed<kLine>(from, k, count, line, lines, to);
  pack_straight<kLine>(from, line, lines, k, count, to);
}

Left pack_left(const Operand& from, const Block& block, float* to) {
  const auto& [line, lines, k, count] = block;
  if (!is_packed(from) || from.columns) {
    pack_rows(from, block, to);
    return {to, 0};
  }
  const Weight& weight = *from.weight;
  const int64_t first = line / kPanelRows;
  if (weight.dtype == DType::kF32) {
    const int64_t panel = weight.cols * kPanelRows;
    return {static_cast<const float*>(weight.data) + first * panel + k * kPanelRows, panel};
  }
  for (int64_t i = 0; i < lines; i += kPanelRows) {
    decode_panel(weight, first + i / kPanelRows, k, count, to + i * kLine);
  }
  return {to, kPanelRows * kLine};
}

// to[j * kPanelRows + i] = from(line + i, k + j)
void pack_panel(const Operand& from, const Block& block, float* to) {
  const auto& [line, lines, k, count] = block;
  if (is_packed(from)) {
    if (from.columns) return pack_panel_columns(*from.weight, line, lines, k, count, to);
    return decode_panel(*from.weight, line / kPanelRows, k, count, to);
  }
  if (from.columns) return pack_straight<kPanelRows>(from, k, count, line, lines, to);
  pack_transposed<kPanelRows>(from, line, lines, k, count, to);
}

#include "backend/cpu/conv/correlate_body.h"
#include "backend/cpu/conv/depthwise_body.h"
#include "backend/cpu/conv/depthwise_compact_body.h"
#include "backend/cpu/conv/depthwise_lanes_body.h"
#include "backend/cpu/conv/winograd_body.h"
#include "backend/cpu/dora/low_rank_body.h"
#include "backend/cpu/gemm/gemm_multiply.h"
#include "backend/cpu/ops/pool_body.h"
#include "backend/cpu/ops/pool_compact_body.h"

constexpr GemmKernels kGemmKernels = {
    .pack_rows = pack_rows,
    .pack_panel = pack_panel,
    .pack_left = pack_left,
    .multiply = multiply,
    .multiply_store = multiply_store,
    .store_rows = store_rows,
    .round_integers = round_integers,
    .add_low_rank = add_low_rank,
};

constexpr ConvKernels kConvKernels = {
    .width = kWidth,
    .correlate = correlate,
    .depthwise = depthwise,
    .depthwise_lanes = depthwise_lanes,
    .depthwise_groups = depthwise_groups,
    .depthwise_compact = depthwise_compact,
    .pad_lines = pad_lines,
    .winograd_input = winograd_input,
    .winograd_output = winograd_output,
    .dots = dots,
};

constexpr PoolKernels kPoolKernels = {
    .max_windows = max_windows, .mean_windows = mean_windows, .max_line = max_line, .mean_line = mean_line};
