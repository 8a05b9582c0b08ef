#include "backend/cpu/product.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/weight.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kTileRows = 64;  // a panel of a, one of b and a tile of sums stay in the second-level cache
constexpr int64_t kTileCols = 48;
constexpr int64_t kChunk = 256;
constexpr int64_t kStride = kChunk + 16;  // a power of two would put all lines into the same cache sets
constexpr int64_t kGrainTerms = 1 << 17;  // products worth waking a thread for

constexpr int kVec = 4, kLanes = 8;
using Vec = float __attribute__((vector_size(kVec * sizeof(float))));

Vec load(const float* from) {
  Vec vec;
  std::memcpy(&vec, from, sizeof(vec));
  return vec;
}

// Lines of one K chunk, contiguous along K.
struct Panel {
  const float* data;
  int64_t stride;
  const float* line(int64_t index) const { return data + index * stride; }
};

void pack_weight(const Operand& from, int64_t line, int64_t lines, int64_t k, int64_t count, float* to) {
  if (!from.columns) {
    for (int64_t i = 0; i < lines; ++i) decode(*from.weight, line + i, k, count, to + i * kStride);
    return;
  }
  float piece[std::max(kTileRows, kTileCols)];
  for (int64_t j = 0; j < count; ++j) {
    decode(*from.weight, k + j, line, lines, piece);
    for (int64_t i = 0; i < lines; ++i) to[i * kStride + j] = piece[i];
  }
}

template <typename Element>
void pack_data(const Operand& from, int64_t lines, int64_t count, Element element, float* to) {
  if (from.k_stride == 1) {
    for (int64_t i = 0; i < lines; ++i) {
      for (int64_t j = 0; j < count; ++j) to[i * kStride + j] = element(i * from.line_stride + j, j);
    }
  } else {
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < lines; ++i) to[i * kStride + j] = element(j * from.k_stride + i, j);
    }
  }
}

// The panel of `lines` lines from `line` over [k, k + count): in place where the layout allows it, else in
// `buffer`.
Panel panel(const Operand& from, int64_t line, int64_t lines, int64_t k, int64_t count, float* buffer) {
  const Panel packed{buffer, kStride};
  if (from.weight) {
    pack_weight(from, line, lines, k, count, buffer);
    return packed;
  }
  const int64_t first = line * from.line_stride + k * from.k_stride;
  const float* data = from.data + first;
  if (from.mask) {
    const float* mask = from.mask + first;
    pack_data(
        from, lines, count, [=](int64_t at, int64_t) { return data[at] * mask[at]; }, buffer);
    return packed;
  }
  if (from.k_scale) {
    const float* scale = from.k_scale + k;
    pack_data(
        from, lines, count, [=](int64_t at, int64_t j) { return data[at] * scale[j]; }, buffer);
    return packed;
  }
  if (from.k_stride == 1) return {data, from.line_stride};
  pack_data(
      from, lines, count, [=](int64_t at, int64_t) { return data[at]; }, buffer);
  return packed;
}

template <int M, int N>
inline void accumulate(const float* const (&a)[M], const float* const (&b)[N], int64_t k,
                       Vec (&sums)[M][N][2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    Vec right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = load(b[n] + k + half * kVec);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const Vec left = load(a[m] + k + half * kVec);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[m][n][half] += left * right[n];
    }
  }
}

// sums[m * kTileCols + n] += Σ_k a(m, k) · b(n, k) for a block of M by N lines.
template <int M, int N>
void add_block(const Panel& a, const Panel& b, int64_t count, float* sums) {
  Vec lanes[M][N][2] = {};
  const float *left[M], *right[N];
  for (int m = 0; m < M; ++m) left[m] = a.line(m);
  for (int n = 0; n < N; ++n) right[n] = b.line(n);
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) accumulate<M, N>(left, right, k, lanes);
  if (k < count) {
    float tail[M + N][kLanes] = {};
    for (int i = 0; i < M + N; ++i) {
      std::copy_n((i < M ? left[i] : right[i - M]) + k, count - k, tail[i]);
    }
    for (int m = 0; m < M; ++m) left[m] = tail[m];
    for (int n = 0; n < N; ++n) right[n] = tail[M + n];
    accumulate<M, N>(left, right, 0, lanes);
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      const Vec sum = lanes[m][n][0] + lanes[m][n][1];
      sums[m * kTileCols + n] += (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
  }
}

template <int M>
void add_rows(const Panel& a, const Panel& b, int64_t cols, int64_t count, float* sums) {
  int64_t n = 0;
  for (; n + 3 <= cols; n += 3) add_block<M, 3>(a, {b.line(n), b.stride}, count, sums + n);
  if (cols - n == 2) add_block<M, 2>(a, {b.line(n), b.stride}, count, sums + n);
  if (cols - n == 1) add_block<M, 1>(a, {b.line(n), b.stride}, count, sums + n);
}

void add_tile(const Panel& a, const Panel& b, int64_t rows, int64_t cols, int64_t count, float* sums) {
  int64_t m = 0;
  for (; m + 2 <= rows; m += 2) {
    add_rows<2>({a.line(m), a.stride}, b, cols, count, sums + m * kTileCols);
  }
  if (m < rows) add_rows<1>({a.line(m), a.stride}, b, cols, count, sums + m * kTileCols);
}

void tile(int64_t row, int64_t rows, int64_t col, int64_t cols, std::initializer_list<Segment> segments,
          const Store& store) {
  alignas(64) float left[kTileRows * kStride];
  alignas(64) float right[kTileCols * kStride];
  float sums[kTileRows * kTileCols];
  std::fill_n(sums, rows * kTileCols, 0.0f);
  for (const Segment& segment : segments) {
    for (int64_t k = 0; k < segment.depth; k += kChunk) {
      const int64_t count = std::min(kChunk, segment.depth - k);
      const Panel a = panel(segment.a, row, rows, k, count, left);
      const Panel b = panel(segment.b, col, cols, k, count, right);
      add_tile(a, b, rows, cols, count, sums);
    }
  }
  for (int64_t m = 0; m < rows; ++m) store(row + m, col, cols, sums + m * kTileCols);
}

}  // namespace

Operand rows_of(const float* matrix, int64_t cols) { return {nullptr, false, matrix, cols, 1}; }
Operand columns_of(const float* matrix, int64_t cols) { return {nullptr, true, matrix, 1, cols}; }

Operand rows_of(const Weight& weight) {
  if (weight.dtype == DType::kF32) return rows_of(static_cast<const float*>(weight.data), weight.cols);
  return {&weight, false, nullptr, 0, 0};
}

Operand columns_of(const Weight& weight) {
  if (weight.dtype == DType::kF32) return columns_of(static_cast<const float*>(weight.data), weight.cols);
  return {&weight, true, nullptr, 0, 0};
}

Operand masked(Operand operand, const float* mask) {
  operand.mask = mask;
  return operand;
}

Operand scaled(Operand operand, const float* k_scale) {
  operand.k_scale = k_scale;
  return operand;
}

void product(int64_t rows, int64_t cols, std::initializer_list<Segment> segments, const Store& store) {
  const int64_t row_tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t col_tiles = (cols + kTileCols - 1) / kTileCols;
  int64_t depth = 1;
  for (const Segment& segment : segments) depth += segment.depth;
  const int64_t terms = std::min(rows, kTileRows) * std::min(cols, kTileCols) * depth;
  const int64_t grain = terms > 0 ? 1 + kGrainTerms / terms : 1;
  // Neighbouring tiles share their panel of b, usually the weight.
  parallel_for(row_tiles * col_tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t row = index % row_tiles * kTileRows, col = index / row_tiles * kTileCols;
      tile(row, std::min(kTileRows, rows - row), col, std::min(kTileCols, cols - col), segments, store);
    }
  });
}

}  // namespace spark::cpu
