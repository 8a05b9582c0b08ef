// fp8.cu: scale = max|src| of a block of block_rows x block_cols / 448 (1 where that is 0), codes = E4M3(src
// / scale). One block of threads per block of elements, which is read twice. Reference:
// native/backend/cpu/fp8.cc
#include "core/quantizers.h"
#include "kernels/elements.cuh"

namespace spark {

constexpr int kThreads = 256;

template <typename Src>
__device__ void quantize_block(const typename Src::Code* src, int64_t rows, int64_t cols, int64_t block_rows,
                               int64_t block_cols, uint8_t* codes, float* scales) {
  const int64_t across = (cols - 1) / block_cols + 1;
  const int64_t top = blockIdx.x / across * block_rows, left = blockIdx.x % across * block_cols;
  const int64_t height = min(block_rows, rows - top), width = min(block_cols, cols - left);
  const int64_t runs = (width + kRun - 1) / kRun;  // of a row
  uint32_t largest = 0;
  for (int64_t i = threadIdx.x; i < height * runs; i += kThreads) {
    Run<Src> run;
    run.load(src + (top + i / runs) * cols + left, i % runs * kRun, width);
    largest = max(largest, run.max_bits());
  }
  const float scale = fp8_scale(bits_float(block_max<kThreads>(largest)));
  for (int64_t i = threadIdx.x; i < height * runs; i += kThreads) {
    const int64_t start = (top + i / runs) * cols + left, c = i % runs * kRun;
    Run<Src> run;
    Run<E4M3> out;
    run.load(src + start, c, width);
#pragma unroll
    for (int j = 0; j < kRun; ++j) out.codes[j] = fp8_code(Src::decode(run.codes[j]), scale);
    out.store(codes + start, c, width);
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

}  // namespace spark

#define SPARK_QUANTIZE(src_name, Src)                                                                      \
  extern "C" __global__ void fp8_quantize_##src_name(const spark::Src::Code* src, int64_t rows,            \
                                                     int64_t cols, int64_t block_rows, int64_t block_cols, \
                                                     uint8_t* codes, float* scales) {                      \
    spark::quantize_block<spark::Src>(src, rows, cols, block_rows, block_cols, codes, scales);             \
  }

SPARK_QUANTIZE(f32, F32)
SPARK_QUANTIZE(f16, F16)
SPARK_QUANTIZE(bf16, BF16)
