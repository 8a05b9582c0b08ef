// depthwise_body.h: a convolution of one channel with K x K taps and a stride of S. Included by gemm_body.h.
// A line of the image is loaded by neighbouring vectors, and taps are made of them in registers: vectors that
// cross cache lines cost twice.

template <int... kLanes>
inline void deinterleave(Vec a, Vec b, Vec& even, Vec& odd, Lanes<kLanes...>) {
  even = __builtin_shufflevector(a, b, (2 * kLanes)...);
  odd = __builtin_shufflevector(a, b, (2 * kLanes + 1)...);
}

template <int kFirst, int... kLanes>
inline Vec shift_lanes(Vec a, Vec b, Lanes<kLanes...>) {
  return __builtin_shufflevector(a, b, (kFirst + kLanes)...);
}

// The elements of a and b from number `first` on.
inline Vec shift(Vec a, Vec b, int first) {
  const CountLanes<kWidth>::Type lanes;
  switch (first) {
    case 1:
      return shift_lanes<1>(a, b, lanes);
    case 2:
      return shift_lanes<2>(a, b, lanes);
    case 3:
      return shift_lanes<3>(a, b, lanes);
    case 4:
      return shift_lanes<4>(a, b, lanes);
    default:
      return a;
  }
}

inline int64_t in_vector(int64_t lane) { return lane < 0 ? 0 : smaller(lane, kWidth); }

// A column of results: N vectors from x on.
template <int K, int S, int N>
struct DepthwiseColumn {
  static constexpr int kVectors = S * N + 1;  // of a line of the image
  int64_t x;
  int64_t from;         // the index of the first one in its line
  Mask mask[kVectors];  // what lies in the line
  bool inside;          // all of it

  void assign(const DepthwisePlane& of, int64_t at) {
    x = at;
    from = S * x - of.pad[1];
    for (int v = 0; v < kVectors; ++v) {
      const int64_t first = from + v * kWidth, end = in_vector(of.image[1] - first);
      mask[v] = mask_between(smaller(in_vector(-first), end), end);
    }
    inside = from >= 0 && from + kVectors * kWidth <= of.image[1];
  }
};

alignas(64) constexpr float kNoLine[5 * kWidth] = {};  // around the image

// R lines of a column. Each line of the image is loaded once for all results that it belongs to; kInside: all
// that is read lies in the image.
template <int K, int S, int R, int N, bool kInside>
void depthwise_block(const DepthwisePlane& of, const DepthwiseColumn<K, S, N>& column, int64_t y) {
  constexpr int kVectors = DepthwiseColumn<K, S, N>::kVectors;
  const int64_t width = of.image[1], top = S * y - of.pad[0];
  const float* line = of.x + top * width + column.from;
  Vec total[R][N] = {};
#pragma GCC unroll 20
  for (int i = 0; i < S * (R - 1) + K; ++i, line += width) {
    const bool is_line = kInside || (top + i >= 0 && top + i < of.image[0]);
    const float* start = is_line ? line : kNoLine;
    Vec part[S][N + 1];
#pragma GCC unroll 5
    for (int v = 0; v < kVectors; v += S) {
      const auto read = [&](int v) __attribute__((always_inline)) {
        const float* from = start + v * kWidth;
        return kInside ? load(from) : load_masked(from, column.mask[v]);
      };
      const Vec first = read(v);
      if constexpr (S == 1) {
        part[0][v] = first;
      } else {
        const Vec second = v + 1 < kVectors ? read(v + 1) : first;
        deinterleave(first, second, part[0][v / S], part[1][v / S], CountLanes<kWidth>::Type());
      }
    }
#pragma GCC unroll 5
    for (int j = 0; j < K; ++j) {
      Vec values[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) values[n] = shift(part[j % S][n], part[j % S][n + 1], j / S);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int tap = i - S * r;
        if (tap < 0 || tap >= K) continue;
        const Vec weight = splat(of.weights[tap * K + j]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) total[r][n] = multiply_add(weight, values[n], total[r][n]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; K > 3 && r < R; ++r) {
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) order_before_reads(total[r][n]);  // or all weights wait for the last line
    }
  }
  const int64_t pitch = of.out[1], count = pitch - column.x;
  const Vec bias = splat(of.bias);
  float* to = of.y + y * pitch + column.x;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r, to += pitch) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      const Vec sum = total[r][n] + bias;
      store_some(to + n * kWidth, bounded(sum, of.bounds), count - n * kWidth);
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

// Lines are finished one after the other, so that what they share is still in a cache.
template <int K, int S>
void depthwise_plane(const DepthwisePlane& of) {
  constexpr int kMaxPairs = 8;
  const int64_t width = of.out[1];
  for (int64_t x = 0; x < width;) {
    DepthwiseColumn<K, S, 2> pairs[kMaxPairs];
    DepthwiseColumn<K, S, 1> last{};
    int count = 0;
    for (; count < kMaxPairs && width - x > kWidth; ++count, x += 2 * kWidth) pairs[count].assign(of, x);
    const bool single = count < kMaxPairs && x < width;
    if (single) last.assign(of, x);
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
