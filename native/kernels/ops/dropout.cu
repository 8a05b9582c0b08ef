// dropout.cu: the mask of dropout, mask[i] = 0 or keep, [count]. One thread for four elements, which share
// the words of one counter.
// Reference: native/backend/cpu/ops/dropout.cc; the numbers are shared (backend/dropout.h)
#include "backend/dropout.h"
#include "kernels/ops/strided.cuh"

extern "C" __global__ void dropout_mask_f32(spark::DropoutMaskArgs args) {
  const int64_t block = spark::thread_index();
  if (4 * block < args.count) spark::drop_block(args, block);
}
