// conv.cuh: the convolutions of this folder as products sums[line, col] = Σ_k left(line, k) · right(k, col)
// for each group. Forward: lines are filters, k channels and taps, cols positions of all images. Transposed:
// lines are channels, k filters and taps, cols pixels. WeightGradient: lines are filters, k positions of all
// images, cols channels and taps. What depends on the column alone is an Across, what depends on k an Along.
// Trap: offsets in an image are formed modulo 2^32; only sums of both are in range.
#pragma once

#include "kernels/conv/conv_args.h"
#include "kernels/gemm/activation.cuh"

namespace spark {
namespace {

__device__ int32_t numel(const int64_t (&sizes)[3]) {
  return static_cast<int32_t>(sizes[0] * sizes[1] * sizes[2]);
}

// A window of an output position, or a tap: its coordinates in the image and its offset there.
struct Position {
  int32_t at[3];
  uint32_t offset;
};

constexpr int32_t kOutside = -(1 << 30);  // a coordinate that leads out of every image

// The sizes of one group.
struct Group {
  __device__ Group(const ConvPassArgs& args, int32_t group)
      : args(args),
        group(group),
        channels(static_cast<int32_t>(args.shape.channels / args.shape.groups)),
        filters(static_cast<int32_t>(args.shape.filters / args.shape.groups)),
        taps(numel(args.shape.kernel)),
        positions(numel(args.shape.out)),
        pixels(numel(args.shape.image)) {}

  __device__ uint32_t offset_of(const int32_t (&at)[3], const int64_t (&sizes)[3]) const {
    const auto middle = static_cast<uint32_t>(sizes[1]), last = static_cast<uint32_t>(sizes[2]);
    return (static_cast<uint32_t>(at[0]) * middle + at[1]) * last + at[2];
  }

  // Where the window at a position of the output is in its image; returns the number of the image.
  __device__ int32_t place(int32_t position, Position& window) const {
    int32_t q[3];
    const int32_t n = args.out_axes.split(position, q);
    for (int i = 0; i < 3; ++i) {
      window.at[i] = q[i] * args.stride.size[i].divisor() - static_cast<int32_t>(args.shape.pad[i]);
    }
    window.offset = offset_of(window.at, args.shape.image);
    return n;
  }

  // The window at a position of the output; image is the channels of this group.
  struct Window : Position {
    const float* image;
  };
  __device__ Window window(int32_t position) const {
    Window window;
    const int32_t n = place(position, window);
    window.image = args.x + (n * args.shape.channels + int64_t{group} * channels) * pixels;
    return window;
  }

  // A channel and a tap of its filter.
  __device__ Position tap(int32_t row) const {
    Position tap;
    const int32_t channel = args.kernel.split(row, tap.at);
    for (int i = 0; i < 3; ++i) tap.at[i] *= static_cast<int32_t>(args.shape.dilation[i]);
    tap.offset = offset_of(tap.at, args.shape.image) + static_cast<uint32_t>(channel) * pixels;
    return tap;
  }

  // Whether a tap of a window is in the image.
  __device__ bool inside(const Position& window, const int32_t (&tap)[3]) const {
    bool inside = true;
    for (int i = 0; i < 3; ++i) {
      inside &= static_cast<uint32_t>(window.at[i] + tap[i]) < static_cast<uint32_t>(args.shape.image[i]);
    }
    return inside;
  }

  // x there; 0 outside of the image.
  __device__ float image(const Window& window, const Position& tap) const {
    return inside(window, tap.at) ? window.image[window.offset + tap.offset] : 0.0f;
  }

  // Where element `line` of column `col` of an output [N, lines, size] begins.
  __device__ int64_t start(int32_t col, const FastAxes& axes, int64_t lines, int32_t size) const {
    int32_t at[3];
    const int32_t n = axes.split(col, at);
    return n * lines * size + (col - n * size);
  }

  const ConvPassArgs& args;
  int32_t group, channels, filters, taps, positions, pixels;
};

struct ForwardPass : Group {
  using Group::Group;
  using Across = Window;
  using Along = Position;
  __device__ int32_t lines() const { return filters; }
  __device__ int32_t cols() const { return static_cast<int32_t>(args.shape.batch) * positions; }
  __device__ int32_t depth() const { return channels * taps; }
  __device__ Across across(int32_t col) const { return window(col); }
  __device__ Along along(int32_t k) const { return tap(k); }
  __device__ int32_t weight_row(int32_t) const { return 0; }  // no one row stands at a k
  __device__ float right(const Along& along, const Across& across) const { return image(across, along); }
  __device__ int64_t start(int32_t col) const {
    return Group::start(col, args.out_axes, args.shape.filters, positions);
  }
  // The element of a sum, which is y[at].
  __device__ float finished(int32_t o, int64_t at, float sum) const {
    const float residual = args.residual ? args.residual[at] : 0;
    if (args.bias) sum += args.bias[o];
    if (args.residual_first) sum += residual;
    sum = activated(args.activation, sum);
    return args.residual_first ? sum : sum + residual;
  }
  __device__ void store(int32_t line, int64_t start, float sum) const {
    const int32_t o = group * filters + line;
    const int64_t at = start + int64_t{o} * positions;
    args.out[at] = finished(o, at, sum);
  }
};

struct TransposedPass : Group {
  using Group::Group;
  // A pixel, and dy of the filters of this group.
  struct Across {
    int32_t at[3];
    const float* gradient;
  };
  using Along = Position;
  __device__ int32_t lines() const { return channels; }
  __device__ int32_t cols() const { return static_cast<int32_t>(args.shape.batch) * pixels; }
  __device__ int32_t depth() const { return filters * taps; }
  __device__ Across across(int32_t col) const {
    Across across;
    const int32_t n = args.image.split(col, across.at);
    for (int i = 0; i < 3; ++i) across.at[i] += static_cast<int32_t>(args.shape.pad[i]);
    across.gradient = args.dy + (n * args.shape.filters + int64_t{group} * filters) * positions;
    return across;
  }
  __device__ Along along(int32_t k) const {
    Along tap;
    const int32_t filter = args.kernel.split(k, tap.at);
    for (int i = 0; i < 3; ++i) tap.at[i] *= -static_cast<int32_t>(args.shape.dilation[i]);
    tap.offset = static_cast<uint32_t>(filter) * positions;
    return tap;
  }
  __device__ int32_t weight_row(int32_t k) const {
    int32_t tap[3];
    return group * filters + args.kernel.split(k, tap);
  }
  // dy of the filter where the tap leads to the pixel from; 0 where it does from no position.
  __device__ float right(const Along& along, const Across& across) const {
    bool inside = true;
    int32_t q[3];
    for (int i = 0; i < 3; ++i) {
      const int32_t distance = across.at[i] + along.at[i];
      const FastDivisor& stride = args.stride.size[i];
      q[i] = stride(distance);
      inside &= distance >= 0 && q[i] < static_cast<int32_t>(args.shape.out[i]) &&
                q[i] * stride.divisor() == distance;
    }
    return inside ? across.gradient[along.offset + offset_of(q, args.shape.out)] : 0.0f;
  }
  __device__ int64_t start(int32_t col) const {
    return Group::start(col, args.image, args.shape.channels, pixels);
  }
  __device__ void store(int32_t line, int64_t start, float sum) const {
    const int32_t c = group * channels + line;
    args.out[start + int64_t{c} * pixels] = args.bias ? sum + args.bias[c] : sum;
  }
};

struct WeightGradientPass : Group {
  using Group::Group;
  using Across = Position;
  using Along = Window;
  __device__ int32_t lines() const { return filters; }
  __device__ int32_t cols() const { return channels * taps; }
  __device__ int32_t depth() const { return static_cast<int32_t>(args.shape.batch) * positions; }
  __device__ Across across(int32_t col) const { return tap(col); }
  __device__ Along along(int32_t k) const { return window(k); }
  __device__ float right(const Along& along, const Across& across) const { return image(along, across); }
};

}  // namespace
}  // namespace spark
