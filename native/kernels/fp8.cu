// fp8.cu: row_scale[r] = max|src[r, :]| / 448 (1 where that is 0), codes[r, c] = E4M3(src[r, c] /
// row_scale[r]). One block of threads per row, which is read twice. Reference: native/backend/cpu/fp8.cc
#include "core/quantizers.h"
#include "kernels/elements.cuh"

namespace spark {

constexpr int kThreads = 256;

template <typename Src>
__device__ void quantize_row(const typename Src::Code* src, int64_t cols, uint8_t* codes, float* row_scale) {
  const int64_t start = blockIdx.x * cols;
  uint32_t largest = 0;
  for (int64_t c = threadIdx.x * kRun; c < cols; c += kThreads * kRun) {
    Run<Src> run;
    run.load(src + start, c, cols);
    largest = max(largest, run.max_bits());
  }
  const float scale = fp8_row_scale(bits_float(block_max<kThreads>(largest)));
  for (int64_t c = threadIdx.x * kRun; c < cols; c += kThreads * kRun) {
    Run<Src> run;
    Run<E4M3> out;
    run.load(src + start, c, cols);
#pragma unroll
    for (int i = 0; i < kRun; ++i) out.codes[i] = fp8_code(Src::decode(run.codes[i]), scale);
    out.store(codes + start, c, cols);
  }
  if (threadIdx.x == 0) row_scale[blockIdx.x] = scale;
}

}  // namespace spark

#define SPARK_QUANTIZE(src_name, Src)                                                           \
  extern "C" __global__ void fp8_quantize_##src_name(const spark::Src::Code* src, int64_t cols, \
                                                     uint8_t* codes, float* row_scale) {        \
    spark::quantize_row<spark::Src>(src, cols, codes, row_scale);                               \
  }

SPARK_QUANTIZE(f32, F32)
SPARK_QUANTIZE(f16, F16)
SPARK_QUANTIZE(bf16, BF16)
