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
};

struct Sum {
  using Number = double;
  static constexpr Number kStart = -0.0;  // −0 + x is x, also for −0
  static Number join(Number sum, Number value) { return sum + value; }
};

// to[c] = the elements of channel c under a window, joined, for c < count; x is the first channel of an
// image.
template <typename Join>
void join_window(const Windows& of, const Window& at, const float* x, int64_t channels, int64_t count,
                 typename Join::Number* to) {
  using Number = typename Join::Number;
  const auto& [deep, down, across] = at.inside;
  std::fill_n(to, count, Join::kStart);
  for (int64_t k = across.first; k < across.last; ++k) {
    Number column[kChannels];
    std::fill_n(column, count, Join::kStart);
    for (int64_t i = deep.first; i < deep.last; ++i) {
      const int64_t plane = (at.start[0] + i * of.dilation[0]) * of.image[1];
      for (int64_t j = down.first; j < down.last; ++j) {
        const int64_t line = (plane + at.start[1] + j * of.dilation[1]) * of.image[2];
        const float* from = x + (line + at.start[2] + k * of.dilation[2]) * channels;
        for (int64_t c = 0; c < count; ++c) column[c] = Join::join(column[c], static_cast<Number>(from[c]));
      }
    }
    for (int64_t c = 0; c < count; ++c) to[c] = Join::join(to[c], column[c]);
  }
}

// y[c · stride] = the largest element, or the mean, of channel c under a window, for all channels.
void pool_window(const PoolArgs& args, const Window& at, const float* x, float* y, int64_t stride) {
  for (int64_t first = 0; first < args.channels; first += kChannels) {
    const int64_t count = std::min(kChannels, args.channels - first);
    float* to = y + first * stride;
    if (args.fn == PoolFn::kMax) {
      float most[kChannels];
      join_window<Largest>(args.windows, at, x + first, args.channels, count, most);
      for (int64_t c = 0; c < count; ++c) to[c * stride] = most[c];
    } else {
      double sums[kChannels];
      join_window<Sum>(args.windows, at, x + first, args.channels, count, sums);
      const auto divisor = static_cast<double>(at.divisor);
      for (int64_t c = 0; c < count; ++c) to[c * stride] = static_cast<float>(sums[c] / divisor);
    }
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
  const int64_t pixels = image[0] * image[1] * image[2];
  const auto* x = static_cast<const float*>(args.x);
  auto* y = static_cast<float*>(args.y);
  const int64_t taps = kernel[0] * kernel[1] * kernel[2];
  parallel_for(planes / channels * positions, grain_for(channels * taps, 1 << 14),
               [&](int64_t at, int64_t end) {
                 for (; at < end; ++at) {
                   const int64_t n = at / positions, q = at % positions, row = q / out[2];
                   const Window window =
                       window_at(args.windows, args.count_pad, {row / out[1], row % out[1], q % out[2]});
                   float* to = y + n * channels * positions + (args.y_compact ? q * channels : q);
                   pool_window(args, window, x + n * pixels * channels, to, args.y_compact ? 1 : positions);
                 }
               });
}

}  // namespace spark::cpu
