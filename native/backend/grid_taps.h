// grid_taps.h: the taps and weights from which gridSample interpolates a point. One source for the CPU and
// the CUDA kernels.
#pragma once

#include <cmath>

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

template <typename V>
SPARK_HOST_DEVICE inline V clamped(V x, V low, V high) {
  return x < low ? low : x > high ? high : x;
}

// The elements along one axis that a point is interpolated from; index -1 is outside, where everything is 0.
struct Taps {
  int count;
  int64_t index[4];
  float weight[4];
};

// Mirrors x at the ends of [low, high] until it is inside.
SPARK_HOST_DEVICE inline float reflect(float x, float low, float high) {
  if (x >= low && x <= high) return x;
  const float range = high - low;
  if (!(range > 0)) return low;
  const float beyond = x < low ? low - x : x - high;
  const float turns = std::floor(beyond / range), rest = beyond - turns * range;
  const bool from_low = (x < low) == (std::fmod(turns, 2.0f) == 0);
  return from_low ? low + rest : high - rest;
}

SPARK_HOST_DEVICE inline int64_t element(const GridSampleArgs& args, int64_t index, int64_t size, float low,
                                         float high) {
  if (index >= 0 && index < size) return index;
  switch (args.out_of_image) {
    case OutOfImage::kBorder:
      return clamped(index, int64_t{0}, size - 1);
    case OutOfImage::kReflection:
      return clamped(static_cast<int64_t>(reflect(static_cast<float>(index), low, high)), int64_t{0},
                     size - 1);
    default:
      return -1;
  }
}

// Keys' cubic with a = -0.75 for the elements at distances 1 + t, t, 1 - t and 2 - t.
SPARK_HOST_DEVICE inline void cubic_weights(float t, float (&weight)[4]) {
  constexpr float a = -0.75f;
  const auto near = [](float d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [](float d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  weight[0] = far(1 + t);
  weight[1] = near(t);
  weight[2] = near(1 - t);
  weight[3] = far(2 - t);
}

SPARK_HOST_DEVICE inline Taps taps_at(const GridSampleArgs& args, float coordinate, int64_t size) {
  const float length = static_cast<float>(size);
  const float low = args.align_corners ? 0 : -0.5f, high = args.align_corners ? length - 1 : length - 0.5f;
  float x = args.align_corners ? (coordinate + 1) / 2 * (length - 1) : ((coordinate + 1) * length - 1) / 2;
  if (!std::isfinite(x)) x = -2 - length;  // outside; its cast to an integer would be undefined
  if (args.interpolation == Interpolation::kNearest) x = std::nearbyint(x);
  if (args.out_of_image == OutOfImage::kBorder) x = clamped(x, 0.0f, length - 1);
  if (args.out_of_image == OutOfImage::kReflection) x = reflect(x, low, high);
  x = clamped(x, -4.0f - length, 4 + 2 * length);  // all as far outside
  const float floor = std::floor(x);
  Taps taps{};
  int64_t first = static_cast<int64_t>(floor);
  switch (args.interpolation) {
    case Interpolation::kNearest:
      taps = {1, {}, {1}};
      first = static_cast<int64_t>(x);
      break;
    case Interpolation::kLinear:
      taps = {2, {}, {1 - (x - floor), x - floor}};
      break;
    case Interpolation::kCubic:
      taps.count = 4;
      first -= 1;
      cubic_weights(x - floor, taps.weight);
      break;
  }
  for (int i = 0; i < taps.count; ++i) taps.index[i] = element(args, first + i, size, low, high);
  return taps;
}

// Those along all axes.
struct GridTaps {
  Taps axis[3];
};

// The taps of the point whose coordinates begin at `grid`.
SPARK_HOST_DEVICE inline GridTaps grid_taps(const GridSampleArgs& args, const float* grid) {
  GridTaps taps{{{1, {0}, {1}}, {1, {0}, {1}}, {1, {0}, {1}}}};
  for (int64_t axis = 0; axis < args.axes; ++axis) {
    taps.axis[2 - axis] = taps_at(args, grid[axis], args.image[2 - axis]);
  }
  return taps;
}

// The image x at a point.
SPARK_HOST_DEVICE inline float interpolated(const GridSampleArgs& args, const GridTaps& taps,
                                            const float* x) {
  float sum = 0;
  for (int i = 0; i < taps.axis[0].count; ++i) {
    for (int j = 0; j < taps.axis[1].count; ++j) {
      for (int k = 0; k < taps.axis[2].count; ++k) {
        const int64_t a = taps.axis[0].index[i], b = taps.axis[1].index[j], c = taps.axis[2].index[k];
        if (a < 0 || b < 0 || c < 0) continue;
        sum += taps.axis[0].weight[i] * taps.axis[1].weight[j] * taps.axis[2].weight[k] *
               x[(a * args.image[1] + b) * args.image[2] + c];
      }
    }
  }
  return sum;
}

}  // namespace spark
