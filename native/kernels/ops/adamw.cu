// adamw.cu: one AdamW step in place (Loshchilov and Hutter 2019, algorithm 2) of several tensors: param,
// grad, m, v [count]. adamw_step forms the constants of the step (backend/adamw_step.h) on the device, where
// learning rate and step number may be read anew at each run of a plan; then one thread per element, whose
// block finds its tensor by a binary search in the prefix sums of blocks. Reference:
// native/backend/cpu/ops/adamw.cc, operation by operation
#include "backend/adamw_step.h"
#include "kernels/ops/adamw_blocks.h"

namespace spark {
namespace {

// The last tensor that begins at a block or before it: tensors without elements have no block.
__device__ int64_t tensor_of(const AdamwBlocks& blocks, int64_t tensor_count, int64_t block) {
  int64_t low = 0, high = tensor_count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (blocks.first[middle] <= block ? low : high) = middle;
  }
  return low;
}

}  // namespace
}  // namespace spark

extern "C" __global__ void adamw_step(spark::AdamwArgs args, spark::AdamwStep* step) {
  *step = spark::AdamwStep(args);
}

extern "C" __global__ void adamw_f32(spark::AdamwArgs args, spark::AdamwBlocks blocks,
                                     const spark::AdamwStep* constants) {
  const int64_t t = spark::tensor_of(blocks, args.tensor_count, blockIdx.x);
  const auto& [count, grad, param, m, v] = args.tensors[t];
  const int64_t i = (blockIdx.x - blocks.first[t]) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const spark::AdamwStep step = *constants;
  const float g = grad[i];
  const float first = m[i] + (g - m[i]) * step.rest1;
  const float second = v[i] * step.beta2 + g * g * step.rest2;
  m[i] = first;
  v[i] = second;
  param[i] = param[i] * step.decay - step.rate * (first / (sqrtf(second) / step.correction + step.eps));
}
