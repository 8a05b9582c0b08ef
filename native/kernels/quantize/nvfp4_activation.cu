// nvfp4_activation.cu: f32 activations as rows in NVFP4 by the recipe `modelopt` (struct Nvfp4Rows of
// product_args.h), each with the tensor scale that its largest magnitude asks for, or all with one that is
// given, and rows in codes as bf16. One block per row, which is read twice, the second time from a cache.
// Reference: native/backend/cpu/quantize/nvfp4.cc
#include "kernels/gemm/pairs.cuh"
#include "kernels/gemm/product_args.h"
#include "kernels/quantize/nvfp4.cuh"

namespace spark {
namespace {

using nvfp4_activation_block::kThreads;

// A row of the activation and its tensor scale.
class Row {
 public:
  // With `scale`, or that of its own where it is 0. All threads of the block must call it.
  __device__ Row(const float* x, int64_t cols, float scale)
      : x_(x + blockIdx.x * cols), cols_(cols), tensor_scale_(scale) {
    if (scale != 0) return;
    uint32_t largest = 0;
    for (int block = threadIdx.x; block < cols_ / kNvfp4Block; block += kThreads) {
      largest = max(largest, load(block).max_bits());
    }
    tensor_scale_ = nvfp4_row_scale(bits_float(block_max<kThreads>(largest)));
  }

  __device__ float tensor_scale() const { return tensor_scale_; }

  // The codes of a block, and its scale.
  __device__ uint32_t quantize(int block, uint32_t (&codes)[kNvfp4Block]) const {
    const Run<F32> run = load(block);
    const uint32_t scale = nvfp4_block_scale(bits_float(run.max_bits()), tensor_scale_);
    const float step = nvfp4_step(scale, tensor_scale_);
#pragma unroll
    for (int i = 0; i < kNvfp4Block; ++i) codes[i] = nvfp4_code(F32::decode(run.codes[i]), step);
    return scale;
  }

 private:
  __device__ Run<F32> load(int block) const {
    Run<F32> run;
    run.load(reinterpret_cast<const F32::Code*>(x_), int64_t{block} * kNvfp4Block, cols_);
    return run;
  }

  const float* x_;
  int64_t cols_;
  float tensor_scale_;
};

// A block of 16 as numbers in bf16.
__device__ void store_values(uint16_t* to, int64_t block, const uint32_t (&codes)[kNvfp4Block], float step) {
  Eight halves[2];
#pragma unroll
  for (int i = 0; i < kNvfp4Block / 2; ++i) {
    const float low = nvfp4_value(codes[2 * i], step);
    halves[i / 4].pairs[i % 4] = round_pair(low, nvfp4_value(codes[2 * i + 1], step));
  }
  Eight* out = reinterpret_cast<Eight*>(to) + 2 * block;
  out[0] = halves[0];
  out[1] = halves[1];
}

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::nvfp4_activation_block::kThreads)
    nvfp4_activation_codes(const float* x, spark::Nvfp4Rows to, float scale) {
  using namespace spark;
  const int64_t row = blockIdx.x;
  const int blocks = to.cols / kNvfp4Block, across = padded_depth(to.cols / 4) / 4;
  const Row source(x, to.cols, scale);
  for (int block = threadIdx.x; block < across; block += kThreads) {
    uint32_t codes[kNvfp4Block] = {};
    if (block < blocks) to.scales[row * blocks + block] = source.quantize(block, codes);
    Packed packed;
#pragma unroll
    for (int i = 0; i < kPackedBytes; ++i) {
      packed.pairs[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
    reinterpret_cast<Packed*>(to.codes)[row * across + block] = packed;
  }
  if (threadIdx.x == 0) to.factors[row] = source.tensor_scale();
}

extern "C" __global__ void __launch_bounds__(spark::nvfp4_activation_block::kThreads)
    nvfp4_activation_bf16(const float* x, spark::Nvfp4Rows to, float scale) {
  using namespace spark;
  const int64_t row = blockIdx.x;
  const int blocks = to.cols / kNvfp4Block, across = padded_depth(to.cols) / kNvfp4Block;
  const Row source(x, to.cols, scale);
  for (int block = threadIdx.x; block < across; block += kThreads) {
    uint32_t codes[kNvfp4Block] = {};
    float step = 0;
    if (block < blocks) step = nvfp4_step(source.quantize(block, codes), source.tensor_scale());
    store_values(to.codes, row * across + block, codes, step);
  }
}

// Rows in codes, for a product that FP4 tensor cores do not take after all.
extern "C" __global__ void __launch_bounds__(spark::nvfp4_activation_block::kThreads)
    nvfp4_activation_decode(spark::Nvfp4Rows from, uint16_t* to) {
  using namespace spark;
  const int64_t row = blockIdx.x;
  const int blocks = from.cols / kNvfp4Block, stride = padded_depth(from.cols / 4) / 4;
  const int across = padded_depth(from.cols) / kNvfp4Block;
  for (int block = threadIdx.x; block < across; block += kThreads) {
    uint32_t codes[kNvfp4Block] = {};
    float step = 0;
    if (block < blocks) {
      const Packed packed = reinterpret_cast<const Packed*>(from.codes)[row * stride + block];
#pragma unroll
      for (int i = 0; i < kNvfp4Block; ++i) codes[i] = packed.pairs[i / 2] >> i % 2 * 4 & 15u;
      step = nvfp4_step(from.scales[row * blocks + block], from.factors[row]);
    }
    store_values(to, row * across + block, codes, step);
  }
}
