// fp8.cu: scale = max|src| of a block of block_rows x block_cols / 448 (1 where that is 0), codes = E4M3(src
// / scale). fp8_quantize: one block of threads per block of elements, which is read twice. Large blocks of
// elements are shared by `parts` blocks of threads: fp8_amax leaves a maximum of each, fp8_codes takes the
// largest. Magnitudes are compared as bits, so the order does not matter.
// Reference: native/backend/cpu/quantize/fp8.cc
#include "core/quantizers.h"
#include "kernels/quantize/elements.cuh"

namespace spark {

using fp8_block::kThreads;

// Block `index` of the elements, in runs of a row; this thread takes every `stride`th from `first` on.
template <typename Src>
struct Block {
  const typename Src::Code* src;
  int64_t cols, top, left, height, width, runs;

  __device__ Block(const typename Src::Code* src, int64_t rows, int64_t cols, int64_t block_rows,
                   int64_t block_cols, int64_t index)
      : src(src), cols(cols) {
    const int64_t across = (cols - 1) / block_cols + 1;
    top = index / across * block_rows;
    left = index % across * block_cols;
    height = min(block_rows, rows - top);
    width = min(block_cols, cols - left);
    runs = (width + kRun - 1) / kRun;
  }

  __device__ uint32_t max_bits(int64_t first, int64_t stride) const {
    uint32_t largest = 0;
    for (int64_t i = first; i < height * runs; i += stride) {
      Run<Src> run;
      run.load(src + (top + i / runs) * cols + left, i % runs * kRun, width);
      largest = max(largest, run.max_bits());
    }
    return largest;
  }

  __device__ void encode(int64_t first, int64_t stride, float scale, uint8_t* codes) const {
    for (int64_t i = first; i < height * runs; i += stride) {
      const int64_t start = (top + i / runs) * cols + left, c = i % runs * kRun;
      Run<Src> run;
      Run<E4M3> out;
      run.load(src + start, c, width);
#pragma unroll
      for (int j = 0; j < kRun; ++j) out.codes[j] = fp8_code(Src::decode(run.codes[j]), scale);
      out.store(codes + start, c, width);
    }
  }
};

template <typename Src>
__device__ void quantize(const Block<Src>& block, uint8_t* codes, float* scales) {
  const uint32_t largest = block_max<kThreads>(block.max_bits(threadIdx.x, kThreads));
  const float scale = fp8_scale(bits_float(largest));
  block.encode(threadIdx.x, kThreads, scale, codes);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

template <typename Src>
__device__ void part_amax(const Block<Src>& block, int64_t parts, uint32_t* partial) {
  const int64_t first = blockIdx.x % parts * kThreads + threadIdx.x;
  const uint32_t largest = block_max<kThreads>(block.max_bits(first, parts * kThreads));
  if (threadIdx.x == 0) partial[blockIdx.x] = largest;
}

template <typename Src>
__device__ void part_codes(const Block<Src>& block, int64_t parts, const uint32_t* partial, uint8_t* codes,
                           float* scales) {
  const int64_t index = blockIdx.x / parts, part = blockIdx.x % parts;
  uint32_t largest = 0;
  for (int64_t i = threadIdx.x; i < parts; i += kThreads) largest = max(largest, partial[index * parts + i]);
  const float scale = fp8_scale(bits_float(block_max<kThreads>(largest)));
  block.encode(part * kThreads + threadIdx.x, parts * kThreads, scale, codes);
  if (part == 0 && threadIdx.x == 0) scales[index] = scale;
}

}  // namespace spark

#define SPARK_QUANTIZE(name, Src)                                                                         \
  extern "C" __global__ void fp8_quantize_##name(const spark::Src::Code* src, int64_t rows, int64_t cols, \
                                                 int64_t block_rows, int64_t block_cols, uint8_t* codes,  \
                                                 float* scales) {                                         \
    const spark::Block<spark::Src> block(src, rows, cols, block_rows, block_cols, blockIdx.x);            \
    spark::quantize(block, codes, scales);                                                                \
  }                                                                                                       \
  extern "C" __global__ void fp8_amax_##name(const spark::Src::Code* src, int64_t rows, int64_t cols,     \
                                             int64_t block_rows, int64_t block_cols, int64_t parts,       \
                                             uint32_t* partial) {                                         \
    const spark::Block<spark::Src> block(src, rows, cols, block_rows, block_cols, blockIdx.x / parts);    \
    spark::part_amax(block, parts, partial);                                                              \
  }                                                                                                       \
  extern "C" __global__ void fp8_codes_##name(const spark::Src::Code* src, int64_t rows, int64_t cols,    \
                                              int64_t block_rows, int64_t block_cols, int64_t parts,      \
                                              const uint32_t* partial, uint8_t* codes, float* scales) {   \
    const spark::Block<spark::Src> block(src, rows, cols, block_rows, block_cols, blockIdx.x / parts);    \
    spark::part_codes(block, parts, partial, codes, scales);                                              \
  }

SPARK_QUANTIZE(f32, F32)
SPARK_QUANTIZE(f16, F16)
SPARK_QUANTIZE(bf16, BF16)
