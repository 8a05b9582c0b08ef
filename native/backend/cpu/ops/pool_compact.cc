// pool_compact.cc: poolings of compact images, a vector of channels at a time. A window goes through its
// columns of taps first, as those of planes do (pool_body.h), so that sums have one order.
#include "backend/cpu/ops/pool_compact.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/scratch.h"
#include "backend/windows.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kChannels = 64;  // that are gone through together

// NaN is the largest; of equal ones the first counts.
struct Largest {
  using Number = float;
  static constexpr Number kStart = -std::numeric_limits<float>::infinity();
  static Number join(Number most, Number value) { return (most >= value) | (most != most) ? most : value; }
  static float result(Number most, int64_t) { return most; }
};

struct Mean {
  using Number = double;
  static constexpr Number kStart = 0;
  static Number join(Number sum, Number value) { return sum + value; }
  static float result(Number sum, int64_t divisor) {
    return static_cast<float>(sum / static_cast<double>(divisor));
  }
};

// A line of windows: y[q · step + c · stride] is channel c of window q. x and y: of the first channel of an
// image.
struct Line {
  const float* x;
  float* y;
  int64_t step, stride;
  TapRange deep, down;  // that are in the image
  int64_t a, b, divisor;
};

// columns[p · kChannels + c] = the elements of channel c at column p under the windows, joined, for c <
// count.
template <typename Join>
void join_columns(const PoolArgs& args, const Line& line, int64_t count, typename Join::Number* columns) {
  const Windows& of = args.windows;
  const int64_t width = of.image[2];
  for (int64_t p = 0; p < width; ++p) std::fill_n(columns + p * kChannels, count, Join::kStart);
  for (int64_t i = line.deep.first; i < line.deep.last; ++i) {
    const int64_t plane = (line.a * of.stride[0] + i * of.dilation[0] - of.pad[0]) * of.image[1];
    for (int64_t j = line.down.first; j < line.down.last; ++j) {
      const int64_t row = plane + line.b * of.stride[1] + j * of.dilation[1] - of.pad[1];
      for (int64_t p = 0; p < width; ++p) {
        const float* from = line.x + (row * width + p) * args.channels;
        auto* to = columns + p * kChannels;
        for (int64_t c = 0; c < count; ++c) to[c] = Join::join(to[c], from[c]);
      }
    }
  }
}

template <typename Join>
void pool_line(const PoolArgs& args, const Line& line, int64_t count) {
  const Windows& of = args.windows;
  typename Join::Number columns[kFewPositions * kChannels], joined[kChannels];
  join_columns<Join>(args, line, count, columns);
  for (int64_t q = 0; q < of.out[2]; ++q) {
    const TapRange across = taps_within(of, 2, q, 0, of.image[2]);
    std::fill_n(joined, count, Join::kStart);
    for (int64_t k = across.first; k < across.last; ++k) {
      const auto* column = columns + (q * of.stride[2] + k * of.dilation[2] - of.pad[2]) * kChannels;
      for (int64_t c = 0; c < count; ++c) joined[c] = Join::join(joined[c], column[c]);
    }
    const int64_t divisor = line.divisor * counted_taps(of, args.count_pad, 2, q);
    float* y = line.y + q * line.step;
    for (int64_t c = 0; c < count; ++c) y[c * line.stride] = Join::result(joined[c], divisor);
  }
}

// The pooling of planes, and its result with the channels last.
void pool_planes(const PoolArgs& args, int64_t positions) {
  const int64_t channels = args.channels, planes = args.windows.planes;
  const Scratch pooled(planes * positions);
  PoolArgs of_planes = args;
  of_planes.y = pooled.data();
  of_planes.y_compact = false;
  pool(of_planes);
  auto* y = static_cast<float*>(args.y);
  parallel_for(planes, grain_for(positions, 1 << 14), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      float* to = y + plane / channels * channels * positions + plane % channels;
      const float* from = pooled.data() + plane * positions;
      for (int64_t q = 0; q < positions; ++q) to[q * channels] = from[q];
    }
  });
}

}  // namespace

void pool_compact(const PoolArgs& args) {
  const auto& [planes, image, kernel, out, stride, dilation, pad, pad_end] = args.windows;
  const int64_t channels = args.channels, positions = out[0] * out[1] * out[2];
  if (!args.x_compact) return pool_planes(args, positions);
  const int64_t pixels = image[0] * image[1] * image[2], images = planes / channels;
  const int64_t blocks = (channels + kChannels - 1) / kChannels, lines = out[0] * out[1];
  const int64_t terms = kernel[0] * kernel[1] * image[2] * kChannels;
  const int64_t step = args.y_compact ? channels : 1;
  parallel_for(images * lines * blocks, grain_for(terms, 1 << 14), [&](int64_t at, int64_t end) {
    for (; at < end; ++at) {
      const int64_t n = at / blocks / lines, row = at / blocks % lines, first = at % blocks * kChannels;
      const int64_t a = row / out[1], b = row % out[1], channel = args.y_compact ? 1 : positions;
      const Line line = {
          static_cast<const float*>(args.x) + n * pixels * channels + first,
          static_cast<float*>(args.y) + n * positions * channels + first * channel + row * out[2] * step,
          step,
          channel,
          taps_within(args.windows, 0, a, 0, image[0]),
          taps_within(args.windows, 1, b, 0, image[1]),
          a,
          b,
          counted_taps(args.windows, args.count_pad, 0, a) *
              counted_taps(args.windows, args.count_pad, 1, b)};
      const int64_t count = std::min(kChannels, channels - first);
      args.fn == PoolFn::kMax ? pool_line<Largest>(args, line, count) : pool_line<Mean>(args, line, count);
    }
  });
}

}  // namespace spark::cpu
