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

void winograd_input(const float* plane, const int64_t* taps, int64_t pitch, int64_t lines, int64_t count,
                    float* to, int64_t stride) {
  for (int64_t y = 0; y < lines; ++y) {
    for (int64_t x = 0; x < count; x += kWidth) {
      const float* from = plane + y * pitch + x;
      Vec half[kTileIn][kTileIn];
      for (int j = 0; j < kTileIn; ++j) {
        Vec column[kTileIn];
#pragma GCC unroll 6
        for (int i = 0; i < kTileIn; ++i) column[i] = load(from + taps[kTileIn * i + j]);
        transform_input(column, half[j]);
      }
      // What a vector has too much the next lines write over, but nothing may go behind the last one.
      const int64_t some = (lines - y) * count - x;
      float* place = to + y * count + x;
      for (int i = 0; i < kTileIn; ++i) {
        Vec row[kTileIn], result[kTileIn];
#pragma GCC unroll 6
        for (int j = 0; j < kTileIn; ++j) row[j] = half[j][i];
        transform_input(row, result);
#pragma GCC unroll 6
        for (int j = 0; j < kTileIn; ++j) store_some(place + (kTileIn * i + j) * stride, result[j], some);
      }
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
