// pool_kernels.h: the poolings' share of CpuKernels.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

constexpr int64_t kPoolLines = 8;    // of windows that are computed together
constexpr int64_t kPoolMargin = 16;  // more columns than an image has, on either side

constexpr int64_t kPoolChannels = 128;  // of a compact image that are gone through together

// A line of windows, (a, b), on a compact image of so many channels: `count` of them, at most kPoolChannels,
// the first of which is x[0] in the image and y[0] in the line.
struct CompactLine {
  int64_t channels, count, a, b;
  const float* x;
  float* y;
};

// Taps that the mean of the window at each position along an axis counts; those along the last axis and
// kPoolMargin numbers more.
struct CountedTaps {
  const double* axes[3];
};

struct PoolKernels {
  // y = the largest elements of the windows on so many planes: −∞ where one covers nothing, NaN where it
  // covers one. columns: kPoolLines · pitch times −∞, some of which are written over; pitch: at least
  // (out[2] + 16) · stride[2] + (kernel[2] − 1) · dilation[2] + 32.
  void (*max_windows)(const Windows& windows, int64_t planes, const float* x, float* columns, int64_t pitch,
                      float* y);
  // y = the means of the windows on so many planes, summed in f64: columns of the image first.
  // columns: 8-byte aligned, image[2] + 2 · kPoolMargin doubles for each line that is computed together, and
  // kPoolMargin more.
  void (*mean_windows)(const Windows& windows, const CountedTaps& counts, int64_t planes, const float* x,
                       double* columns, float* y);
  // The same of a line, with the same bits. columns: image[2] · kPoolChannels numbers; 8-byte aligned.
  void (*max_line)(const Windows& windows, const CompactLine& line, float* columns);
  void (*mean_line)(const Windows& windows, const CompactLine& line, const CountedTaps& counts,
                    double* columns);
};

}  // namespace spark::cpu
