// winograd_body.h: the transforms of Winograd's F(4 x 4, 3 x 3), a vector of tiles at a time. No operation is
// fused, so every instruction set gives the same bits. Included by gemm_body.h.

constexpr int kTileIn = 6, kTileOut = 4;
constexpr float kRootHalf = 0.70710678f, kRootTwo = 1.41421356f;

// Bᵀ · d: coefficients of Π (x − p) over the points but one, and over all of them.
inline void transform_input(const Vec (&d)[kTileIn], Vec (&to)[kTileIn]) {
  const Vec a = d[4] - 2 * d[2], b = kRootHalf * d[3] - kRootTwo * d[1];
  const Vec c = d[4] - 0.5f * d[2], e = kRootTwo * d[3] - kRootHalf * d[1];
  to[0] = d[0] - 2.5f * d[2] + d[4];
  to[1] = a + b;
  to[2] = a - b;
  to[3] = c + e;
  to[4] = c - e;
  to[5] = d[1] - 2.5f * d[3] + d[5];
}

// Aᵀ · m: powers of the points.
inline void transform_output(const Vec (&m)[kTileIn], Vec (&to)[kTileOut]) {
  const Vec p = m[1] + m[2], q = m[1] - m[2], r = m[3] + m[4], s = m[3] - m[4];
  to[0] = m[0] + p + r;
  to[1] = kRootHalf * q + kRootTwo * s;
  to[2] = 0.5f * p + 2 * r;
  to[3] = 0.5f * kRootHalf * q + 2 * kRootTwo * s + m[5];
}

// Bᵀ · d of all columns of a line of tiles: line i of `to` is row i of the result, line 6 + i the same
// without its first four columns. Behind the last column something is written that is not wanted.
void transform_columns(const WinogradPlane& of, int64_t y, float* to) {
  const auto [height, width] = of.size;
  const int64_t top = kTileOut * y - of.pad[0];
  for (int64_t column = 0; column < kTileOut * (of.across + 1); column += kWidth) {
    const int64_t x = column - of.pad[1], end = in_vector(width - x);
    const Mask mask = mask_between(smaller(in_vector(-x), end), end);
    Vec lines[kTileIn], result[kTileIn];
#pragma GCC unroll 6
    for (int i = 0; i < kTileIn; ++i) {
      const bool is_line = top + i >= 0 && top + i < height;
      const float* from = of.image + (top + i) * width + x;
      lines[i] = load_masked(from, mask_if(is_line, mask));
      if (i >= kTileIn - kTileOut) __builtin_prefetch(from + height * width);
    }
    transform_input(lines, result);
#pragma GCC unroll 6
    for (int i = 0; i < kTileIn; ++i) {
      float *target = to + i * of.pitch, *later = target + kTileIn * of.pitch;
      store(target + column, result[i]);
      if (column == 0) {
        store(later, shift(result[i], result[i], kTileOut));
      } else {
        store(later + column - kTileOut, result[i]);
      }
    }
  }
}

// to[j] = elements j, 4 + j, 8 + j …
inline void load_fourths(const float* from, Vec (&to)[kTileOut]) {
  const CountLanes<kWidth>::Type lanes;
  Vec even[2], odd[2];
  for (int i = 0; i < 2; ++i) {
    const float* pair = from + 2 * i * kWidth;
    deinterleave(load(pair), load(pair + kWidth), even[i], odd[i], lanes);
  }
  deinterleave(even[0], even[1], to[0], to[2], lanes);
  deinterleave(odd[0], odd[1], to[1], to[3], lanes);
}

// The columns of all lines follow each other in `workspace`, so that a vector of tiles goes on with the next
// line.
void winograd_input(const WinogradPlane& plane, float* workspace, float* to, int64_t stride, int64_t panel) {
  const int64_t tiles = plane.lines * plane.across, pitch = plane.pitch;
  for (int64_t y = 0; y < plane.lines; ++y) {
    transform_columns(plane, y, workspace + kTileOut * y * plane.across);
  }
  for (int64_t tile = 0; tile < tiles; tile += kWidth) {
    float* target = to + tile / kPanelRows * panel + tile % kPanelRows;
    for (int i = 0; i < kTileIn; ++i) {
      const float* line = workspace + i * pitch + kTileOut * tile;
      Vec first[kTileOut], next[kTileOut], result[kTileIn];
      load_fourths(line, first);
      load_fourths(line + kTileIn * pitch, next);
      transform_input({first[0], first[1], first[2], first[3], next[0], next[1]}, result);
#pragma GCC unroll 6
      for (int j = 0; j < kTileIn; ++j) store(target + (kTileIn * i + j) * stride, result[j]);
    }
  }
}

// The first and the last half of a[0], b[0], a[1], b[1] …
template <int... kLanes>
inline Vec first_half(Vec a, Vec b, Lanes<kLanes...>) {
  return __builtin_shufflevector(a, b, (kLanes / 2 + kLanes % 2 * kWidth)...);
}
template <int... kLanes>
inline Vec last_half(Vec a, Vec b, Lanes<kLanes...>) {
  return __builtin_shufflevector(a, b, (kWidth / 2 + kLanes / 2 + kLanes % 2 * kWidth)...);
}

// to[4 · i + j] = element i of vector j
inline void store_interleaved(const Vec (&v)[kTileOut], float* to) {
  const CountLanes<kWidth>::Type lanes;
  const Vec a = first_half(v[0], v[2], lanes), b = first_half(v[1], v[3], lanes);
  const Vec c = last_half(v[0], v[2], lanes), d = last_half(v[1], v[3], lanes);
  store(to, first_half(a, b, lanes));
  store(to + kWidth, last_half(a, b, lanes));
  store(to + 2 * kWidth, first_half(c, d, lanes));
  store(to + 3 * kWidth, last_half(c, d, lanes));
}

void winograd_output(const float* from, int64_t stride, int64_t count, float bias, int64_t pitch, float* to) {
  for (int64_t x = 0; x < count; x += kWidth) {
    Vec half[kTileIn][kTileOut];
    for (int j = 0; j < kTileIn; ++j) {
      Vec column[kTileIn];
#pragma GCC unroll 6
      for (int i = 0; i < kTileIn; ++i) column[i] = load(from + (kTileIn * i + j) * stride + x);
      transform_output(column, half[j]);
    }
    for (int i = 0; i < kTileOut; ++i) {
      Vec row[kTileIn], result[kTileOut];
#pragma GCC unroll 6
      for (int j = 0; j < kTileIn; ++j) row[j] = half[j][i];
      transform_output(row, result);
#pragma GCC unroll 4
      for (int j = 0; j < kTileOut; ++j) result[j] += splat(bias);
      store_interleaved(result, to + i * pitch + kTileOut * x);
    }
  }
}
