// depthwise_body.h: a convolution of one channel with K x K taps and a stride of S. Included by gemm_body.h.

template <int... kLanes>
inline void deinterleave(Vec a, Vec b, Vec& even, Vec& odd, Lanes<kLanes...>) {
  even = __builtin_shufflevector(a, b, (2 * kLanes)...);
  odd = __builtin_shufflevector(a, b, (2 * kLanes + 1)...);
}

inline int64_t in_vector(int64_t lane) { return lane < 0 ? 0 : smaller(lane, kWidth); }

// Vectors of a line that give all taps: with a stride of 2 the even and odd elements of two neighbours give
// two taps.
template <int K, int S>
constexpr int kTapVectors = S == 1 ? K : K + 1;

template <int S>
constexpr int64_t tap_vector(int v) {
  return S == 1 ? v : v / 2 * 2 + v % 2 * kWidth;
}

// A column of results, N vectors that are `gap` elements apart.
template <int K, int S, int N>
struct DepthwiseColumn {
  int64_t x, gap;
  Mask mask[N][kTapVectors<K, S>];  // what lies in a line of the image
  bool inside;                      // all of it

  void place(const DepthwisePlane& of, int64_t at_x, int64_t at_gap) {
    x = at_x;
    gap = at_gap;
    inside = true;
    for (int n = 0; n < N; ++n) {
      for (int v = 0; v < kTapVectors<K, S>; ++v) {
        const int64_t at = S * (x + n * gap) - of.pad[1] + tap_vector<S>(v);
        const int64_t end = in_vector(of.image[1] - at);
        mask[n][v] = mask_between(smaller(in_vector(-at), end), end);
        inside &= at >= 0 && at + kWidth <= of.image[1];
      }
    }
  }
};

// R lines of a column. A vector of the image is loaded once for all results that it belongs to; kInside: all
// that is read lies in the image.
template <int K, int S, int R, int N, bool kInside>
void depthwise_block(const DepthwisePlane& of, const DepthwiseColumn<K, S, N>& column, int64_t y) {
  const int64_t width = of.image[1], top = S * y - of.pad[0];
  const float* line = of.x + top * width + S * column.x - of.pad[1];
  Vec total[R][N] = {};
#pragma GCC unroll 20
  for (int i = 0; i < S * (R - 1) + K; ++i, line += width) {
    const bool is_line = top + i >= 0 && top + i < of.image[0];
    const auto read = [&](int n, int v) __attribute__((always_inline)) {
      const float* from = line + S * n * column.gap + tap_vector<S>(v);
      return kInside ? load(from) : load_masked(from, mask_if(is_line, column.mask[n][v]));
    };
    const auto add = [&](int j, const Vec(&values)[N]) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int tap = i - S * r;
        if (tap < 0 || tap >= K) continue;
        const Vec weight = splat(of.weights[tap * K + j]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) total[r][n] = multiply_add(weight, values[n], total[r][n]);
      }
    };
#pragma GCC unroll 5
    for (int j = 0; j < K; j += S) {
      Vec first[N], second[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) {
        if constexpr (S == 1) {
          first[n] = read(n, j);
        } else {
          deinterleave(read(n, j), read(n, j + 1), first[n], second[n], CountLanes<kWidth>::Type());
        }
      }
      add(j, first);
      if (S == 2 && j + 1 < K) add(j + 1, second);
    }
  }
  const int64_t pitch = of.out[1];
  const Vec shift = splat(of.bias), least = splat(of.relu ? 0 : -__builtin_inff());
  float* to = of.y + y * pitch + column.x;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r, to += pitch) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      const Vec sum = total[r][n] + shift;
      store_some(to + n * column.gap, sum < least ? least : sum, pitch);
    }
  }
}

// R lines from `next` on, or the last R; all lines where there are fewer.
template <int K, int S, int R, int N>
void depthwise_lines(const DepthwisePlane& of, const DepthwiseColumn<K, S, N>& column, int64_t next) {
  const int64_t height = of.out[0];
  if (next >= height) return;
  if (height < R) {
    for (int64_t y = 0; y < height; ++y) depthwise_block<K, S, 1, N, false>(of, column, y);
    return;
  }
  const int64_t y = smaller(next, height - R), top = S * y - of.pad[0];
  if (column.inside && top >= 0 && top + S * (R - 1) + K <= of.image[0]) {
    depthwise_block<K, S, R, N, true>(of, column, y);
  } else {
    depthwise_block<K, S, R, N, false>(of, column, y);
  }
}

// Lines are finished one after the other, so that what they share is still in a cache. The last vector of a
// line overlaps the one before it.
template <int K, int S>
void depthwise_plane(const DepthwisePlane& of) {
  constexpr int kMostPairs = 8;
  const int64_t width = of.out[1];
  for (int64_t x = 0; x < width;) {
    DepthwiseColumn<K, S, 2> pairs[kMostPairs];
    DepthwiseColumn<K, S, 1> last;
    int count = 0;
    for (; count < kMostPairs && width - x > kWidth; ++count, x += 2 * kWidth) {
      pairs[count].place(of, x, smaller(kWidth, width - kWidth - x));
    }
    const bool single = count < kMostPairs && x < width;
    if (single) last.place(of, width < kWidth ? 0 : width - kWidth, 0);
    for (int64_t y = 0; y < of.out[0]; y += 8) {
      for (int i = 0; i < count; ++i) {
        depthwise_lines<K, S, 4, 2>(of, pairs[i], y);
        depthwise_lines<K, S, 4, 2>(of, pairs[i], y + 4);
      }
      if (single) depthwise_lines<K, S, 8, 1>(of, last, y);
    }
    if (single) return;
  }
}

void depthwise(int64_t kernel, const DepthwisePlane& plane) {
  if (kernel == 3) return plane.stride == 1 ? depthwise_plane<3, 1>(plane) : depthwise_plane<3, 2>(plane);
  plane.stride == 1 ? depthwise_plane<5, 1>(plane) : depthwise_plane<5, 2>(plane);
}
