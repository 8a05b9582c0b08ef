// pool_body.h: the largest elements and the sums of windows. For the largest ones columns of the image are
// gone through first, for some lines of results: what neighbouring windows share of a column is its largest
// element. Included by gemm_body.h.

constexpr int64_t kLinesAtOnce = 8;
constexpr int64_t kAhead = 1024;  // floats that are asked for before they are read

// Lines of an image that a window covers: `planes` times `lines` of them, so far apart.
struct CoveredLines {
  const float* first;
  int64_t planes, plane_step, lines, line_step;
};

// The taps of the window at q that lie in the image along an axis: `count` from `start` on.
struct CoveredTaps {
  int64_t start, count;

  CoveredTaps(const Windows& of, int axis, int64_t q)
      : start(q * of.stride[axis] - of.pad[axis]), count(of.kernel[axis]) {
    const int64_t step = of.dilation[axis], size = of.image[axis];
    for (; count > 0 && start < 0; --count) start += step;
    while (count > 0 && start + (count - 1) * step >= size) --count;
  }
};

// to[i] = the largest element of column i of some lines, for i < count; kLines of one plane, 0: any.
template <int kLines>
void max_of_columns(const CoveredLines& from, int64_t count, float* to) {
  const int64_t planes = kLines ? 1 : from.planes, lines = kLines ? kLines : from.lines;
  for (int64_t at = 0; at < count; at += kWidth) {
    // The last vector overlaps the one before it.
    const int64_t col = at + kWidth > count && count > kWidth ? count - kWidth : at;
    Vec max = splat(-__builtin_inff());
    for (int64_t i = 0; i < planes; ++i) {
      const float* line = from.first + i * from.plane_step + col;
#pragma GCC unroll 3
      for (int64_t j = 0; j < lines; ++j) {
        max = larger(max, load_some(line + j * from.line_step, count - col));
      }
      __builtin_prefetch(line + kAhead);
    }
    store_some(to + col, max, count - col);
  }
}

// The vector of from[0], from[stride] …; kStride of them, 0: any.
template <int kStride>
inline Vec load_apart(const float* from, int64_t stride) {
  if constexpr (kStride == 1) return load(from);
  if constexpr (kStride == 2) return evens(load(from), load(from + kWidth - 1));
  Vec values;
  for (int64_t lane = 0; lane < kWidth; ++lane) values[lane] = from[lane * stride];
  return values;
}

template <int kStride>
void max_of_taps(const Windows& of, const float* columns, float* y) {
  const int64_t count = of.out[2], stride = of.stride[2];
  for (int64_t at = 0; at < count; at += kWidth) {
    const float* from = columns + at * stride;
    Vec max = load_apart<kStride>(from, stride);
    for (int64_t k = 1; k < of.kernel[2]; ++k) {
      max = larger(max, load_apart<kStride>(from + k * of.dilation[2], stride));
    }
    store_some(y + at, max, count - at);
  }
}

void max_windows(const Windows& of, int64_t planes, const float* x, float* columns, int64_t pitch, float* y) {
  const auto [depth, height, width] = of.image;
  const int64_t reach = (of.out[2] - 1) * of.stride[2] + (of.kernel[2] - 1) * of.dilation[2] + 1;
  const int64_t end = smaller(width, reach - of.pad[2]);  // of the columns that are read
  const auto of_taps = of.stride[2] == 1   ? max_of_taps<1>
                       : of.stride[2] == 2 ? max_of_taps<2>
                                           : max_of_taps<0>;
  for (int64_t block = 0; block < planes * of.out[0]; ++block) {
    const CoveredTaps deep(of, 0, block % of.out[0]);
    const float* layer = x + (block / of.out[0] * depth + deep.start) * height * width;
    for (int64_t b = 0; b < of.out[1]; b += kLinesAtOnce) {
      const int64_t lines = smaller(kLinesAtOnce, of.out[1] - b);
      for (int64_t i = 0; i < lines; ++i) {
        const CoveredTaps down(of, 1, b + i);
        const CoveredLines from = {layer + down.start * width, deep.count, of.dilation[0] * height * width,
                                   down.count, of.dilation[1] * width};
        const int64_t covered = deep.count == 1 ? down.count : 0;
        const auto of_columns = covered == 2   ? max_of_columns<2>
                                : covered == 3 ? max_of_columns<3>
                                               : max_of_columns<0>;
        of_columns(from, end, columns + i * pitch + of.pad[2]);
      }
      for (int64_t i = 0; i < lines; ++i, y += of.out[2]) of_taps(of, columns + i * pitch, y);
    }
  }
}

void add_apart(const float* x, int64_t stride, int64_t count, double* sums) {
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) sums[i] += x[i];
  } else if (stride == 2) {
    for (int64_t i = 0; i < count; ++i) sums[i] += x[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) sums[i] += x[stride * i];
  }
}

void divide(const double* sums, const double* counts, double factor, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(sums[i] / (factor * counts[i]));
}
