// softmax_cross_entropy.cu: losses[t] = −log softmax(logits[t, :])[labels[t]], dlogits = (softmax − onehot) /
// T, and the mean of the losses. logits[T, C]; one block per row, the largest logit is taken away before exp.
// Reference: native/backend/cpu/ops/softmax_cross_entropy.cc
#include "backend/backend.h"
#include "kernels/reduce.cuh"

extern "C" __global__ void softmax_cross_entropy_f32(spark::SoftmaxCrossEntropyArgs args, float* losses) {
  const int64_t first = blockIdx.x * args.classes;
  const float* logits = args.logits + first;
  float largest = -INFINITY;
  for (int64_t c = threadIdx.x; c < args.classes; c += blockDim.x) largest = fmaxf(largest, logits[c]);
  largest = spark::block_max(largest);
  float sum = 0;
  for (int64_t c = threadIdx.x; c < args.classes; c += blockDim.x) sum += expf(logits[c] - largest);
  sum = spark::block_sum(sum);
  const int64_t label = args.labels[blockIdx.x];
  const bool known = label >= 0 && label < args.classes;
  if (threadIdx.x == 0) losses[blockIdx.x] = known ? logf(sum) - (logits[label] - largest) : NAN;
  if (!args.dlogits) return;
  const float scale = 1.0f / args.tokens;
  for (int64_t c = threadIdx.x; c < args.classes; c += blockDim.x) {
    const float share = expf(logits[c] - largest) * (scale / sum);
    args.dlogits[first + c] = c == label ? share - scale : share;
  }
}

// loss[0] = mean of losses[T], by one block.
extern "C" __global__ void softmax_cross_entropy_mean_f32(const float* losses, int64_t tokens, float* loss) {
  double sum = 0;
  for (int64_t t = threadIdx.x; t < tokens; t += blockDim.x) sum += losses[t];
  sum = spark::block_sum(sum);
  if (threadIdx.x == 0) loss[0] = static_cast<float>(sum / tokens);
}
