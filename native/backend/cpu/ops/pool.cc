// pool.cc: max and average pooling and their gradients.
#include <algorithm>
#include <limits>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/ops/pool_bytes.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"
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
  parallel_for(windows.planes, grain_for(image + out, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) body(plane * image, plane * out);
  });
}

// Calls visit(c, x, stride, count) for every tap and the columns of row (a, b) of the output that it reaches,
// in the order of the taps: x is what column c reads, and the next ones are `stride` apart.
template <typename Visit>
void for_each_line(const Windows& windows, const float* x, int64_t a, int64_t b, const Visit& visit) {
  const TapRange planes = taps_within(windows, 0, a, 0, windows.image[0]),
                 rows = taps_within(windows, 1, b, 0, windows.image[1]);
  const int64_t stride = windows.stride[2], width = windows.image[2];
  const auto coordinate = [&](int axis, int64_t q, int64_t tap) {
    return q * windows.stride[axis] + tap * windows.dilation[axis] - windows.pad[axis];
  };
  for (int64_t i = planes.first; i < planes.last; ++i) {
    for (int64_t j = rows.first; j < rows.last; ++j) {
      const float* row = x + (coordinate(0, a, i) * windows.image[1] + coordinate(1, b, j)) * width;
      for (int64_t k = 0; k < windows.kernel[2]; ++k) {
        const int64_t shift = coordinate(2, 0, k);
        const int64_t first = shift < 0 ? (stride - 1 - shift) / stride : 0;
        const int64_t reached = shift < width ? (width - shift + stride - 1) / stride : 0;
        const int64_t last = std::min(windows.out[2], reached);
        if (first < last) visit(first, row + first * stride + shift, stride, last - first);
      }
    }
  }
}

// Row (a, b) of the largest elements of a plane.
void largest_in_row(const Windows& windows, const float* x, int64_t a, int64_t b, float* y) {
  std::fill_n(y, windows.out[2], -std::numeric_limits<float>::infinity());
  for_each_line(windows, x, a, b, [&](int64_t c, const float* from, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const float most = y[c + i], v = from[i * stride];
      // NaN is the largest.
      y[c + i] = (most >= v) | (most != most) ? most : v;
    }
  });
}

// Whether windows hardly leave the image along its lines.
bool covers_lines(const Windows& windows) {
  constexpr int64_t kReach = 16;
  const int64_t width = windows.image[2] + kReach, stride = windows.stride[2];
  return (windows.kernel[2] - 1) * windows.dilation[2] < kReach && stride <= width &&
         (windows.out[2] - 1) * stride <= width;
}

void largest_lines(const PoolArgs& args) {
  const Windows& windows = args.windows;
  const int64_t image = windows.image[0] * windows.image[1] * windows.image[2];
  const int64_t out = windows.out[0] * windows.out[1] * windows.out[2];
  const int64_t planes = grain_for(image + out, 1 << 14);
  const int64_t tasks = (windows.planes + planes - 1) / planes;
  const int64_t beyond = (windows.kernel[2] - 1) * windows.dilation[2] + 32;
  const int64_t pitch = (windows.out[2] + 16) * windows.stride[2] + beyond;
  parallel_tasks(tasks, kPoolLines * pitch, [&](int64_t task, float* columns) {
    const int64_t first = task * planes;
    std::fill_n(columns, kPoolLines * pitch, -std::numeric_limits<float>::infinity());
    kernels().pool.max_windows(windows, std::min(planes, windows.planes - first),
                               static_cast<const float*>(args.x) + first * image, columns, pitch,
                               static_cast<float*>(args.y) + first * out);
  });
}

// The taps that means count, along each axis.
class Counts {
 public:
  explicit Counts(const PoolArgs& args) {
    for (int axis = 0; axis < 3; ++axis) {
      for (int64_t q = 0; q < args.windows.out[axis]; ++q) {
        counts_[axis].push_back(static_cast<double>(counted_taps(args.windows, args.count_pad, axis, q)));
      }
      counts_[axis].resize(counts_[axis].size() + kPoolMargin, 1);
    }
  }

  CountedTaps taps() const { return {{counts_[0].data(), counts_[1].data(), counts_[2].data()}}; }

 private:
  std::vector<double> counts_[3];
};

void mean_lines(const PoolArgs& args) {
  const Windows& windows = args.windows;
  const Counts counts(args);
  const int64_t image = windows.image[0] * windows.image[1] * windows.image[2];
  const int64_t out = windows.out[0] * windows.out[1] * windows.out[2];
  const int64_t planes = grain_for(image + out, 1 << 14);
  const int64_t tasks = (windows.planes + planes - 1) / planes;
  const int64_t lines = std::min(kPoolLines, windows.out[1]);
  const int64_t doubles = lines * (windows.image[2] + 2 * kPoolMargin) + kPoolMargin;
  parallel_tasks(tasks, 2 * doubles, [&](int64_t task, float* workspace) {
    const int64_t first = task * planes;
    auto* columns = reinterpret_cast<double*>(workspace);
    kernels().pool.mean_windows(windows, counts.taps(), std::min(planes, windows.planes - first),
                                static_cast<const float*>(args.x) + first * image, columns,
                                static_cast<float*>(args.y) + first * out);
  });
}

// Images whose channels come last.
void compact_lines(const PoolArgs& args) {
  const Windows& windows = args.windows;
  const auto& [planes, image, kernel, out, stride, dilation, pad, pad_end] = windows;
  const int64_t channels = args.channels, lines = out[0] * out[1];
  const int64_t blocks = (channels + kPoolChannels - 1) / kPoolChannels;
  const int64_t all = planes / channels * lines * blocks;  // each a block of channels of a line
  const int64_t terms = (kernel[0] * kernel[1] * image[2] + kernel[2] * out[2]) * kPoolChannels;
  const int64_t together = grain_for(terms, 1 << 16);
  const bool max = args.fn == PoolFn::kMax;
  const Counts counts(args);
  const auto pool_line = [&](int64_t at, float* columns) {
    const int64_t n = at / blocks / lines, line = at / blocks % lines, first = at % blocks * kPoolChannels;
    const int64_t count = std::min(kPoolChannels, channels - first);
    const float* x =
        static_cast<const float*>(args.x) + n * image[0] * image[1] * image[2] * channels + first;
    float* y = static_cast<float*>(args.y) + (n * lines + line) * out[2] * channels + first;
    const CompactLine of = {channels, count, line / out[1], line % out[1], x, y};
    if (max) return kernels().pool.max_line(windows, of, columns);
    kernels().pool.mean_line(windows, of, counts.taps(), reinterpret_cast<double*>(columns));
  };
  const int64_t tasks = (all + together - 1) / together;
  parallel_tasks(tasks, image[2] * kPoolChannels * (max ? 1 : 2), [&](int64_t task, float* columns) {
    const int64_t end = std::min(all, (task + 1) * together);
    for (int64_t at = task * together; at < end; ++at) pool_line(at, columns);
  });
}

}  // namespace

void pool(const PoolArgs& args) {
  const bool bytes = args.dtype == DType::kU8 || args.dtype == DType::kI8;
  if (bytes && args.fn == PoolFn::kMax && !args.indices) return largest_bytes(args);
  expect_f32(args.dtype);
  if (args.channels > 0) return compact_lines(args);
  if (args.fn == PoolFn::kAverage) return mean_lines(args);
  if (!args.indices && covers_lines(args.windows)) return largest_lines(args);
  const int64_t* out_size = args.windows.out;
  for_each_plane(args.windows, [&](int64_t image, int64_t out) {
    const float* x = static_cast<const float*>(args.x) + image;
    float* y = static_cast<float*>(args.y) + out;
    if (args.indices) {
      for_each_window(args.windows, args.count_pad, [&](int64_t q, const Window& window) {
        const int64_t first = first_largest(args.windows, window, x);
        y[q] = first < 0 ? -std::numeric_limits<float>::infinity() : x[first];
        args.indices[out + q] = first < 0 ? first : image + first;
      });
      return;
    }
    for (int64_t a = 0; a < out_size[0]; ++a) {
      for (int64_t b = 0; b < out_size[1]; ++b, y += out_size[2]) {
        largest_in_row(args.windows, x, a, b, y);
      }
    }
  });
}

void pool_backward(const PoolBackwardArgs& args) {
  expect_f32(args.dtype);
  const Windows& windows = args.windows;
  const int64_t pixels = windows.image[0] * windows.image[1] * windows.image[2];
  for_each_plane(windows, [&](int64_t image, int64_t out) {
    const float* x = args.fn == PoolFn::kMax ? static_cast<const float*>(args.x) + image : nullptr;
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
