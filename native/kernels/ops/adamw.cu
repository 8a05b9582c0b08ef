// adamw.cu: one AdamW step in place (Loshchilov and Hutter 2019, algorithm 2), param, grad, m, v [count].
// adamw_step forms the constants of the step (backend/adamw_step.h) on the device, where learning rate and
// step number may be read anew at each run of a plan; then one thread per element.
// Reference: native/backend/cpu/ops/adamw.cc, operation by operation
#include "backend/adamw_step.h"

extern "C" __global__ void adamw_step(spark::AdamwArgs args, spark::AdamwStep* step) {
  *step = spark::AdamwStep(args);
}

extern "C" __global__ void adamw_f32(int64_t count, const spark::AdamwStep* constants, const float* grad,
                                     float* param, float* m, float* v) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const spark::AdamwStep step = *constants;
  const float g = grad[i];
  const float first = m[i] + (g - m[i]) * step.rest1;
  const float second = v[i] * step.beta2 + g * g * step.rest2;
  m[i] = first;
  v[i] = second;
  param[i] = param[i] * step.decay - step.rate * (first / (sqrtf(second) / step.correction + step.eps));
}
