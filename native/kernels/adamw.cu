// adamw.cu: one AdamW step in place (Loshchilov and Hutter 2019, algorithm 2), param, grad, m, v [count].
// One thread per element; the constants come from backend/adamw_step.h.
// Reference: native/backend/cpu/adamw.cc, operation by operation
#include "backend/adamw_step.h"

extern "C" __global__ void adamw_f32(int64_t count, spark::AdamwStep step, const float* grad, float* param,
                                     float* m, float* v) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float g = grad[i];
  const float first = m[i] + (g - m[i]) * step.rest1;
  const float second = v[i] * step.beta2 + g * g * step.rest2;
  m[i] = first;
  v[i] = second;
  param[i] = param[i] * step.decay - step.rate * (first / (sqrtf(second) / step.correction + step.eps));
}
