// pool_body.h: the largest elements and the means of windows. Columns of the image are gone through first:
// what neighbouring windows share of a column is its largest element, or its sum. Included by gemm_body.h.

constexpr int64_t kHalfWidth = kWidth / 2;
using HalfFloats = float __attribute__((vector_size(kHalfWidth * sizeof(float))));
using HalfDoubles = double __attribute__((vector_size(kHalfWidth * sizeof(double))));

// The lanes of a vector twice, or its first half, as the lanes say.
template <typename Values, int... kLane>
inline auto lanes_of(Values values, Lanes<kLane...>) {
  return __builtin_shufflevector(values, values, kLane...);
}

// The first `count`, at most all.
inline void store_half(float* to, HalfFloats values, int64_t count) {
  if (count >= kHalfWidth) {
    __builtin_memcpy(to, &values, sizeof(values));
    return;
  }
  store_part(to, lanes_of(values, CountLanes<kWidth>::Type{}), count);
}

// The first `count` floats, at most kHalfWidth of them, with zeros behind.
inline HalfDoubles load_doubles(const float* from, int64_t count) {
  HalfFloats values;
  if (count >= kHalfWidth) {
    __builtin_memcpy(&values, from, sizeof(values));
  } else {
    values = lanes_of(load_part(from, count), CountLanes<kHalfWidth>::Type{});
  }
  return __builtin_convertvector(values, HalfDoubles);
}

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

// to[i] = the numbers of column i of some lines made one, for i < count; of so many lines of one plane, or
// any.
template <typename Number>
struct ColumnKernels {
  void (*two)(const CoveredLines& from, int64_t count, Number* to);
  void (*three)(const CoveredLines& from, int64_t count, Number* to);
  void (*any)(const CoveredLines& from, int64_t count, Number* to);
};

// The first `count` columns of the lines that windows (a, b + i) cover, at columns[i · pitch] for i < lines;
// layer is the first plane that they cover.
template <typename Number>
void join_columns(const Windows& of, const CoveredTaps& deep, int64_t b, int64_t lines, const float* layer,
                  int64_t count, const ColumnKernels<Number>& kernels, Number* columns, int64_t pitch) {
  const int64_t height = of.image[1], width = of.image[2];
  for (int64_t i = 0; i < lines; ++i) {
    const CoveredTaps down(of, 1, b + i);
    const CoveredLines from = {layer + down.start * width, deep.count, of.dilation[0] * height * width,
                               down.count, of.dilation[1] * width};
    const int64_t covered = deep.count == 1 ? down.count : 0;
    const auto join = covered == 2 ? kernels.two : covered == 3 ? kernels.three : kernels.any;
    join(from, count, columns + i * pitch);
  }
}

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

constexpr ColumnKernels<float> kMaxOfColumns = {max_of_columns<2>, max_of_columns<3>, max_of_columns<0>};

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
    for (int64_t b = 0; b < of.out[1]; b += kPoolLines) {
      const int64_t lines = smaller(kPoolLines, of.out[1] - b);
      join_columns(of, deep, b, lines, layer, end, kMaxOfColumns, columns + of.pad[2], pitch);
      for (int64_t i = 0; i < lines; ++i, y += of.out[2]) of_taps(of, columns + i * pitch, y);
    }
  }
}

// to[i] = the sum of column i of some lines, for i < count rounded up to whole vectors; kLines of one plane,
// 0: any.
template <int kLines>
void sum_of_columns(const CoveredLines& from, int64_t count, double* to) {
  const int64_t planes = kLines ? 1 : from.planes, lines = kLines ? kLines : from.lines;
  for (int64_t at = 0; at < count; at += kHalfWidth) {
    HalfDoubles sum{};
    for (int64_t i = 0; i < planes; ++i) {
      const float* line = from.first + i * from.plane_step + at;
#pragma GCC unroll 3
      for (int64_t j = 0; j < lines; ++j) sum += load_doubles(line + j * from.line_step, count - at);
    }
    __builtin_memcpy(to + at, &sum, sizeof(sum));
  }
}

constexpr ColumnKernels<double> kSumOfColumns = {sum_of_columns<2>, sum_of_columns<3>, sum_of_columns<0>};

constexpr int64_t kMeansAtOnce = 256;

// sums[i] += columns[i · stride] for i < count
void add_columns(const double* columns, int64_t stride, int64_t count, double* sums) {
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) sums[i] += columns[i];
  } else if (stride == 2) {
    for (int64_t i = 0; i < count; ++i) sums[i] += columns[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) sums[i] += columns[stride * i];
  }
}

// The means of a line of windows, each of factor times so many elements, from the sums of columns.
void mean_of_taps(const Windows& of, const double* columns, const double* counts, double factor, float* y) {
  const int64_t stride = of.stride[2], width = of.image[2];
  for (int64_t at = 0; at < of.out[2]; at += kMeansAtOnce) {
    const int64_t end = smaller(at + kMeansAtOnce, of.out[2]);
    double sums[kMeansAtOnce] = {};
    for (int64_t k = 0; k < of.kernel[2]; ++k) {
      // Window c reads column c · stride + shift.
      const int64_t shift = k * of.dilation[2] - of.pad[2];
      const int64_t below = shift < 0 ? (stride - 1 - shift) / stride : 0;
      const int64_t first = at > below ? at : below;
      const int64_t last = smaller(end, shift < width ? (width - shift + stride - 1) / stride : 0);
      if (first < last)
        add_columns(columns + first * stride + shift, stride, last - first, sums + first - at);
    }
    for (int64_t c = at; c < end; ++c) y[c] = static_cast<float>(sums[c - at] / (factor * counts[c]));
  }
}

// The columns from[0], from[kStride] …
template <int kStride, int... kLane>
inline HalfDoubles load_columns(const double* from, Lanes<kLane...>) {
  HalfDoubles values, behind;
  __builtin_memcpy(&values, from, sizeof(values));
  if constexpr (kStride == 1) return values;
  __builtin_memcpy(&behind, from + kHalfWidth - 1, sizeof(behind));
  return __builtin_shufflevector(values, behind, (2 * kLane + (2 * kLane >= kHalfWidth))...);
}

// As mean_of_taps, of columns side by side, for each window or every second one; kTaps of them, 0: any.
// Columns beyond the ends of the image are zero; up to kPoolMargin behind those of a window are read.
template <int kTaps, int kStride>
void mean_of_neighbours(const Windows& of, const double* columns, const double* counts, double factor,
                        float* y) {
  constexpr typename CountLanes<kHalfWidth>::Type kLanes{};
  const double* from = columns - of.pad[2];
  const int64_t taps = kTaps ? kTaps : of.kernel[2];
  for (int64_t c = 0; c < of.out[2]; c += kHalfWidth) {
    HalfDoubles sum{}, count;
#pragma GCC unroll 3
    for (int64_t k = 0; k < taps; ++k) sum += load_columns<kStride>(from + kStride * c + k, kLanes);
    __builtin_memcpy(&count, counts + c, sizeof(count));
    const HalfFloats mean = __builtin_convertvector(sum / (factor * count), HalfFloats);
    store_half(y + c, mean, of.out[2] - c);
  }
}

constexpr int64_t kEdge = kPoolMargin - kHalfWidth;  // columns beyond each end of the image, and a vector

using MeanOfTaps = void (*)(const Windows& of, const double* columns, const double* counts, double factor,
                            float* y);

MeanOfTaps mean_of_taps_for(const Windows& of) {
  const int64_t taps = of.kernel[2], stride = of.stride[2];
  const int64_t reach = (of.out[2] - 1) * stride + taps - of.pad[2];
  if (of.dilation[2] != 1 || of.pad[2] > kEdge || reach > of.image[2] + kEdge) return mean_of_taps;
  if (stride == 1) return taps == 3 ? mean_of_neighbours<3, 1> : mean_of_neighbours<0, 1>;
  if (stride != 2) return mean_of_taps;
  return taps == 3   ? mean_of_neighbours<3, 2>
         : taps == 2 ? mean_of_neighbours<2, 2>
                     : mean_of_neighbours<0, 2>;
}

// Columns of several lines first: a vector that overlaps one just stored would wait for it.
void mean_windows(const Windows& of, const CountedTaps& counts, int64_t planes, const float* x,
                  double* columns, float* y) {
  const auto [depth, height, width] = of.image;
  const MeanOfTaps of_taps = mean_of_taps_for(of);
  const int64_t pitch = width + 2 * kPoolMargin;
  double* inside = columns + kPoolMargin;
  for (int64_t i = 0; i < smaller(kPoolLines, of.out[1]); ++i) {
    double* line = columns + i * pitch;
    for (int64_t j = 0; j < kPoolMargin; ++j) line[j] = line[kPoolMargin + width + j] = 0;
  }
  for (int64_t block = 0; block < planes * of.out[0]; ++block) {
    const int64_t a = block % of.out[0];
    const CoveredTaps deep(of, 0, a);
    const float* layer = x + (block / of.out[0] * depth + deep.start) * height * width;
    for (int64_t b = 0; b < of.out[1]; b += kPoolLines) {
      const int64_t lines = smaller(kPoolLines, of.out[1] - b);
      join_columns(of, deep, b, lines, layer, width, kSumOfColumns, inside, pitch);
      for (int64_t i = 0; i < lines; ++i, y += of.out[2]) {
        const double factor = counts.axes[0][a] * counts.axes[1][b + i];
        of_taps(of, inside + i * pitch, counts.axes[2], factor, y);
      }
    }
  }
}
