#include <algorithm>
#include <limits>

#include "backend/cpu/cpu.h"
#include "backend/windows.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

void expect_f32(DType dtype) {
  if (dtype != DType::kF32) {
    throw Error("ERR_UNSUPPORTED", message("the cpu backend has no kernel for pool in ", dtype_name(dtype)));
  }
}

// Calls body(q, window) for every window of a plane in row-major order.
template <typename Body>
void for_each_window(const Windows& windows, bool count_pad, const Body& body) {
  int64_t q = 0;
  for (int64_t a = 0; a < windows.out[0]; ++a) {
    for (int64_t b = 0; b < windows.out[1]; ++b) {
      for (int64_t c = 0; c < windows.out[2]; ++c, ++q) body(q, window_at(windows, count_pad, {a, b, c}));
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

}  // namespace

void pool(const PoolArgs& args) {
  expect_f32(args.dtype);
  for_each_plane(args.windows, [&](int64_t image, int64_t out) {
    const float* x = static_cast<const float*>(args.x) + image;
    float* y = static_cast<float*>(args.y) + out;
    for_each_window(args.windows, args.count_pad, [&](int64_t q, const Window& window) {
      if (args.indices) {
        const int64_t first = first_largest(args.windows, window, x);
        y[q] = first < 0 ? -std::numeric_limits<float>::infinity() : x[first];
        args.indices[out + q] = first < 0 ? first : image + first;
      } else {
        y[q] = pooled(args.windows, window, args.fn, x);
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
    for_each_window(windows, args.count_pad, [&](int64_t q, const Window& window) {
      if (args.fn == PoolFn::kMax) {
        const int64_t first = first_largest(windows, window, x);
        if (first >= 0) dx[first] += dy[q];
      } else {
        const float part = dy[q] / window.divisor;
        for_each_tap(windows, window, [&](int64_t p) { dx[p] += part; });
      }
    });
  });
}

}  // namespace spark::cpu
