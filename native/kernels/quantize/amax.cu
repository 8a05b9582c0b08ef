// amax.cu: out[0] = max |src[i]|, NaN when any element is NaN.
// Blocks stride over src and leave a maximum each; one block then takes the maximum of those. Magnitudes are
// compared as bits, so NaN wins and the order does not matter.
// Reference: native/backend/cpu/quantize/amax.cc
#include "kernels/quantize/elements.cuh"

namespace spark {

using amax_block::kThreads;

template <typename Src>
__device__ void amax_partial(const typename Src::Code* src, int64_t count, uint32_t* partial) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * kRun;
  uint32_t largest = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kRun; i < count; i += stride) {
    Run<Src> run;
    run.load(src, i, count);
    largest = max(largest, run.max_bits());
  }
  largest = block_max<kThreads>(largest);
  if (threadIdx.x == 0) partial[blockIdx.x] = largest;
}

}  // namespace spark

extern "C" __global__ void amax_f32(const float* src, int64_t count, uint32_t* partial) {
  spark::amax_partial<spark::F32>(src, count, partial);
}

extern "C" __global__ void amax_f16(const uint16_t* src, int64_t count, uint32_t* partial) {
  spark::amax_partial<spark::F16>(src, count, partial);
}

extern "C" __global__ void amax_bf16(const uint16_t* src, int64_t count, uint32_t* partial) {
  spark::amax_partial<spark::BF16>(src, count, partial);
}

// One block: out[0] = the largest of `blocks` partial maxima.
extern "C" __global__ void amax_finish(const uint32_t* partial, int blocks, float* out) {
  uint32_t largest = 0;
  for (int i = threadIdx.x; i < blocks; i += spark::kThreads) largest = max(largest, partial[i]);
  largest = spark::block_max<spark::kThreads>(largest);
  if (threadIdx.x == 0) out[0] = spark::F32::encode(spark::bits_float(largest), 0);
}
