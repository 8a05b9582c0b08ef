// row_kernels.h: the inner loops of softmax, normalizations and attention. Sums are taken in 32 lanes, which
// are added in order at the end, so every instruction set gives the same bits. Outputs may be inputs.
#pragma once

#include <cstdint>

namespace spark::cpu {

struct RowKernels {
  // The largest x[i]; −Inf when there is none. A NaN may be passed over.
  float (*max)(const float* x, int64_t count);
  // x[i] becomes x[i] · factor + offset[i] (null: 0); the largest of them, as above.
  float (*scores)(float* x, int64_t count, float factor, const float* offset);
  // y[i] = e^(x[i] − shift), and their sum; null: the sum alone.
  float (*exponentials)(const float* x, int64_t count, float shift, float* y);
  // Σ x[i], Σ (x[i] − mean)², Σ x[i] · y[i]
  float (*sum)(const float* x, int64_t count);
  float (*square_sum)(const float* x, int64_t count, float mean);
  float (*dot)(const float* x, const float* y, int64_t count);
  // Σ x[i] in f64: whole vectors of 16 in as many lanes, which are added in pairs; then the elements behind.
  double (*double_sum)(const float* x, int64_t count);
  // sums[c] = double_sum of x[i · stride + c] over i < count
  void (*double_sums)(const float* x, int64_t stride, int64_t count, int64_t columns, double* sums);
  // y[c] becomes the largest of y[c] and x[i · stride + c] over i < count: the first of equal ones, NaN where
  // one is.
  void (*max_columns)(const float* x, int64_t stride, int64_t count, int64_t columns, float* y);
  // y[i] = x[i] · factor + shift
  void (*affine)(const float* x, int64_t count, float factor, float shift, float* y);
  // y[i] = (x[i] − mean) · factor · scale[i] + bias[i]; null: 1 and 0
  void (*normalize)(const float* x, int64_t count, float mean, float factor, const float* scale,
                    const float* bias, float* y);
  // sums: Σ g[i] and Σ g[i] · (x[i] − mean) with g[i] = dy[i] · scale[i]; null: 1
  void (*gradient_sums)(const float* dy, const float* scale, const float* x, float mean, int64_t count,
                        float sums[2]);
  // dx[i] = factor · (dy[i] · scale[i] − first − (x[i] − mean) · second)
  void (*normalize_backward)(const float* dy, const float* scale, const float* x, float mean, int64_t count,
                             float factor, float first, float second, float* dx);
  // dx[i] = y[i] · (dy[i] − dot), or for log softmax dy[i] − e^y[i] · dot
  void (*softmax_backward)(const float* y, const float* dy, int64_t count, float dot, bool log, float* dx);
};

}  // namespace spark::cpu
