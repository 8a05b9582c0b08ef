// nvfp4_activation.cu: an f32 activation in NVFP4 by the recipe `modelopt`, each row with the tensor scale
// that its largest magnitude asks for (struct Nvfp4ActivationArgs of product_args.h). One block per row,
// which is read twice, the second time from a cache. Reference:
// native/backend/cpu/quantize/nvfp4.cc
#include "kernels/gemm/pairs.cuh"
#include "kernels/gemm/product_args.h"
#include "kernels/quantize/nvfp4.cuh"

namespace spark {
namespace {

using nvfp4_activation_block::kThreads;

// A row of the activation and its tensor scale.
class Row {
 public:
  // All threads of the block must call it.
  __device__ Row(const Nvfp4ActivationArgs& args, int64_t row)
      : x_(args.x + row * args.cols), cols_(args.cols) {
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

}  // namespace
}  // namespace spark

extern "C" __global__ void __launch_bounds__(spark::nvfp4_activation_block::kThreads)
    nvfp4_activation_codes(spark::Nvfp4ActivationArgs args) {
  using namespace spark;
  const int64_t row = blockIdx.x;
  const int blocks = args.cols / kNvfp4Block, across = padded_depth(args.cols / 4) / 4;
  const Row source(args, row);
  for (int block = threadIdx.x; block < across; block += kThreads) {
    uint32_t codes[kNvfp4Block] = {};
    if (block < blocks) args.scales[row * blocks + block] = source.quantize(block, codes);
    Packed packed;
#pragma unroll
    for (int i = 0; i < kPackedBytes; ++i) {
      packed.pairs[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
    reinterpret_cast<Packed*>(args.codes)[row * across + block] = packed;
  }
  if (threadIdx.x == 0) args.factors[row] = multiply(source.tensor_scale(), args.w_scale);
}

extern "C" __global__ void __launch_bounds__(spark::nvfp4_activation_block::kThreads)
    nvfp4_activation_bf16(spark::Nvfp4ActivationArgs args) {
  using namespace spark;
  const int64_t row = blockIdx.x;
  const int blocks = args.cols / kNvfp4Block, across = padded_depth(args.cols) / kNvfp4Block;
  const Row source(args, row);
  for (int block = threadIdx.x; block < across; block += kThreads) {
    Eight halves[2] = {};
    if (block < blocks) {
      uint32_t codes[kNvfp4Block];
      const float step = nvfp4_step(source.quantize(block, codes), source.tensor_scale());
#pragma unroll
      for (int i = 0; i < kNvfp4Block / 2; ++i) {
        const float low = nvfp4_value(codes[2 * i], step);
        halves[i / 4].pairs[i % 4] = round_pair(low, nvfp4_value(codes[2 * i + 1], step));
      }
    }
    Eight* out = reinterpret_cast<Eight*>(args.codes) + 2 * (row * across + block);
    out[0] = halves[0];
    out[1] = halves[1];
  }
}
