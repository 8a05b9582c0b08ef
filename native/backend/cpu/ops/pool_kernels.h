// pool_kernels.h: the poolings' share of CpuKernels.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

struct PoolKernels {
  // y = the largest elements of the windows on so many planes: −∞ where one covers nothing, NaN where it
  // covers one. columns: 8 · pitch times −∞, some of which are written over; pitch: at least (out[2] + 16) ·
  // stride[2]
  // + (kernel[2] − 1) · dilation[2] + 32.
  void (*max_windows)(const Windows& windows, int64_t planes, const float* x, float* columns, int64_t pitch,
                      float* y);
  // sums[i] += x[i · stride] for i < count
  void (*add_apart)(const float* x, int64_t stride, int64_t count, double* sums);
  // y[i] = sums[i] / (factor · counts[i]) for i < count
  void (*divide)(const double* sums, const double* counts, double factor, int64_t count, float* y);
};

}  // namespace spark::cpu
