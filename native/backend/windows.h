// windows.h: the positions of an image that a pooling window covers. One source for the CPU and the CUDA
// kernels, so that both visit them in the same order.
#pragma once

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

// Taps [first, last) of the window at q that lie in [low, high) along one axis.
struct TapRange {
  int64_t first, last;
};

SPARK_HOST_DEVICE inline TapRange taps_within(const Windows& windows, int axis, int64_t q, int64_t low,
                                              int64_t high) {
  const int64_t start = q * windows.stride[axis] - windows.pad[axis], step = windows.dilation[axis];
  const int64_t first = start < low ? (low - start + step - 1) / step : 0;
  const int64_t beyond = start < high ? (high - start + step - 1) / step : 0;
  const int64_t last = beyond < windows.kernel[axis] ? beyond : windows.kernel[axis];
  return {first, first > last ? first : last};
}

// Taps of the window at q that a mean counts along one axis.
SPARK_HOST_DEVICE inline int64_t counted_taps(const Windows& windows, bool count_pad, int axis, int64_t q) {
  const int64_t before = count_pad ? windows.pad[axis] : 0, after = count_pad ? windows.pad_end[axis] : 0;
  const TapRange taps = taps_within(windows, axis, q, -before, windows.image[axis] + after);
  return taps.last - taps.first;
}

// A window at position q of the output.
struct Window {
  int64_t start[3];  // position of tap 0, outside of the image too
  TapRange inside[3];
  int64_t divisor;  // taps that a mean counts
};

SPARK_HOST_DEVICE inline Window window_at(const Windows& windows, bool count_pad, const int64_t (&q)[3]) {
  Window window{};
  window.divisor = 1;
  for (int axis = 0; axis < 3; ++axis) {
    window.start[axis] = q[axis] * windows.stride[axis] - windows.pad[axis];
    window.inside[axis] = taps_within(windows, axis, q[axis], 0, windows.image[axis]);
    window.divisor *= counted_taps(windows, count_pad, axis, q[axis]);
  }
  return window;
}

// Calls visit(p) for every position in the image, in the order of the taps.
template <typename Visit>
SPARK_HOST_DEVICE inline void for_each_tap(const Windows& windows, const Window& window, const Visit& visit) {
  const auto& [inside_d, inside_h, inside_w] = window.inside;
  for (int64_t i = inside_d.first; i < inside_d.last; ++i) {
    const int64_t depth = window.start[0] + i * windows.dilation[0];
    for (int64_t j = inside_h.first; j < inside_h.last; ++j) {
      const int64_t height = window.start[1] + j * windows.dilation[1];
      const int64_t row = (depth * windows.image[1] + height) * windows.image[2] + window.start[2];
      for (int64_t k = inside_w.first; k < inside_w.last; ++k) visit(row + k * windows.dilation[2]);
    }
  }
}

// The sum of the elements of a window in f64: of each column of the image first, then of the columns.
SPARK_HOST_DEVICE inline double sum_of_window(const Windows& windows, const Window& window, const float* x) {
  double sum = 0;
  for (int64_t k = window.inside[2].first; k < window.inside[2].last; ++k) {
    Window column = window;
    column.inside[2] = {k, k + 1};
    double of_column = 0;
    for_each_tap(windows, column, [&](int64_t p) { of_column += x[p]; });
    sum += of_column;
  }
  return sum;
}

// Where the first largest element of a window is, NaN being the largest; -1 where there is none.
SPARK_HOST_DEVICE inline int64_t first_largest(const Windows& windows, const Window& window, const float* x) {
  int64_t first = -1;
  for_each_tap(windows, window, [&](int64_t p) {
    first = first < 0 || x[p] > x[first] || (x[p] != x[p] && x[first] == x[first]) ? p : first;
  });
  return first;
}

}  // namespace spark
