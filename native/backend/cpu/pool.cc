#include <algorithm>
#include <limits>

#include "backend/cpu/cpu.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

void expect_f32(DType dtype) {
  if (dtype != DType::kF32) {
    throw Error("ERR_UNSUPPORTED", message("the cpu backend has no kernel for pool in ", dtype_name(dtype)));
  }
}

// Taps [first, last) of the window at q that lie in [low, high) along one axis.
struct Range {
  int64_t first, last;

  Range(const Windows& windows, int axis, int64_t q, int64_t low, int64_t high) {
    const int64_t start = q * windows.stride[axis] - windows.pad[axis], step = windows.dilation[axis];
    first = start < low ? (low - start + step - 1) / step : 0;
    last = start < high ? std::min(windows.kernel[axis], (high - start + step - 1) / step) : 0;
    last = std::max(first, last);
  }
};

// Calls body(q, divisor, taps) for every window of a plane in row-major order; taps(visit) calls visit(p) for
// every position in the image, in the order of the taps.
template <typename Body>
void for_each_window(const Windows& windows, bool count_pad, const Body& body) {
  const auto& [planes, image, kernel, out, stride, dilation, pad, pad_end] = windows;
  int64_t q = 0;
  for (int64_t a = 0; a < out[0]; ++a) {
    for (int64_t b = 0; b < out[1]; ++b) {
      for (int64_t c = 0; c < out[2]; ++c, ++q) {
        const int64_t at[3] = {a, b, c};
        const Range inside[3] = {
            {windows, 0, a, 0, image[0]}, {windows, 1, b, 0, image[1]}, {windows, 2, c, 0, image[2]}};
        int64_t divisor = 1;
        for (int axis = 0; axis < 3; ++axis) {
          const Range counted = count_pad
                                    ? Range(windows, axis, at[axis], -pad[axis], image[axis] + pad_end[axis])
                                    : inside[axis];
          divisor *= counted.last - counted.first;
        }
        const auto place = [&](int axis, int64_t tap) {
          return at[axis] * windows.stride[axis] + tap * windows.dilation[axis] - windows.pad[axis];
        };
        body(q, divisor, [&](const auto& visit) {
          for (int64_t i = inside[0].first; i < inside[0].last; ++i) {
            for (int64_t j = inside[1].first; j < inside[1].last; ++j) {
              const int64_t row = (place(0, i) * windows.image[1] + place(1, j)) * windows.image[2];
              for (int64_t k = inside[2].first; k < inside[2].last; ++k) visit(row + place(2, k));
            }
          }
        });
      }
    }
  }
}

// Calls body(x, y) for every plane, from several threads: where it starts in the image and in the output.
template <typename Body>
void for_each_plane(const Windows& windows, const Body& body) {
  const int64_t image = windows.image[0] * windows.image[1] * windows.image[2];
  const int64_t out = windows.out[0] * windows.out[1] * windows.out[2];
  parallel_for(windows.planes, 1 + (1 << 14) / (image + out + 1), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) body(plane * image, plane * out);
  });
}

// Where the first largest element of a window is, NaN being the largest; -1 where there is none.
template <typename Taps>
int64_t first_largest(const float* x, const Taps& taps) {
  int64_t first = -1;
  taps([&](int64_t p) {
    first = first < 0 || x[p] > x[first] || (x[p] != x[p] && x[first] == x[first]) ? p : first;
  });
  return first;
}

}  // namespace

void pool(const PoolArgs& args) {
  expect_f32(args.dtype);
  for_each_plane(args.windows, [&](int64_t image, int64_t out) {
    const float* x = static_cast<const float*>(args.x) + image;
    float* y = static_cast<float*>(args.y) + out;
    for_each_window(args.windows, args.count_pad, [&](int64_t q, int64_t divisor, const auto& taps) {
      if (args.indices) {
        const int64_t first = first_largest(x, taps);
        y[q] = first < 0 ? -std::numeric_limits<float>::infinity() : x[first];
        args.indices[out + q] = first < 0 ? first : image + first;
      } else if (args.fn == PoolFn::kMax) {
        float most = -std::numeric_limits<float>::infinity();
        taps([&](int64_t p) { most = most >= x[p] || most != most ? most : x[p]; });
        y[q] = most;
      } else {
        double sum = 0;
        taps([&](int64_t p) { sum += x[p]; });
        y[q] = static_cast<float>(sum / divisor);
      }
    });
  });
}

void pool_backward(const PoolBackwardArgs& args) {
  expect_f32(args.dtype);
  const Windows& windows = args.windows;
  const int64_t pixels = windows.image[0] * windows.image[1] * windows.image[2];
  for_each_plane(windows, [&](int64_t image, int64_t out) {
    const float* x = static_cast<const float*>(args.x) + image;
    const float* dy = static_cast<const float*>(args.dy) + out;
    float* dx = static_cast<float*>(args.dx) + image;
    std::fill_n(dx, pixels, 0.0f);
    for_each_window(windows, args.count_pad, [&](int64_t q, int64_t divisor, const auto& taps) {
      if (args.fn == PoolFn::kMax) {
        const int64_t first = first_largest(x, taps);
        if (first >= 0) dx[first] += dy[q];
      } else {
        const float part = dy[q] / divisor;
        taps([&](int64_t p) { dx[p] += part; });
      }
    });
  });
}

}  // namespace spark::cpu
