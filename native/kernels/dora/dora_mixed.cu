// dora_mixed.cu: what adapters add to a batch whose rows go through different ones, after the base product
// has left x·Wᵀ in y[T,O]. dora_mixed_down: xa[t, r] = Σ_i x[t, i]·A[r, i] with the A of row t, one block per
// (t, r). dora_mixed: y = gain ∘ (y + s·xa·Bᵀ) + bias, one thread per element. Reference:
// native/backend/cpu/dora/dora_mixed.cc
#include "backend/backend.h"
#include "kernels/reduce.cuh"

namespace spark {
namespace {

// A row of xa has `stride` elements, the largest rank.
__device__ void dora_mixed_down(const DoraMixedArgs& args, int64_t stride, float* xa) {
  const int64_t t = blockIdx.x / stride, r = blockIdx.x % stride;
  if (args.index[t] < 0) return;
  const LowRank& low_rank = args.adapters[args.index[t]].low_rank;
  if (r >= low_rank.rank) return;
  const float* x = args.x + t * args.weight.cols;
  const float* a = low_rank.a + r * args.weight.cols;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < args.weight.cols; i += blockDim.x) sum += x[i] * a[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) xa[t * stride + r] = sum;
}

__device__ void dora_mixed(const DoraMixedArgs& args, int64_t stride, const float* xa) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, out = args.weight.rows;
  if (at >= args.tokens * out) return;
  const int64_t t = at / out, o = at % out;
  float value = args.y[at];
  if (args.index[t] >= 0) {
    const DoraMixedAdapter& adapter = args.adapters[args.index[t]];
    const float* b = adapter.low_rank.b + o * adapter.low_rank.rank;
    float delta = 0;
    for (int64_t r = 0; r < adapter.low_rank.rank; ++r) {
      delta += xa[t * stride + r] * adapter.low_rank.scale * b[r];
    }
    value = adapter.gain[o] * (value + delta);
  }
  args.y[at] = args.bias ? value + args.bias[o] : value;
}

}  // namespace
}  // namespace spark

extern "C" __global__ void dora_mixed_down_f32(spark::DoraMixedArgs args, int64_t stride, float* xa) {
  spark::dora_mixed_down(args, stride, xa);
}

extern "C" __global__ void dora_mixed_f32(spark::DoraMixedArgs args, int64_t stride, const float* xa) {
  spark::dora_mixed(args, stride, xa);
}
