// nvfp4_activation.cu: an f32 activation in NVFP4 by the recipe `modelopt`, with the tensor scale that its
// largest magnitude asks for, which only the device knows (struct Nvfp4ActivationArgs of product_args.h). One
// thread per block of 16, those that fill rows and tiles of scales included. Reference:
// native/backend/cpu/quantize/nvfp4.cc
#include "kernels/gemm/pairs.cuh"
#include "kernels/gemm/product_args.h"
#include "kernels/quantize/nvfp4.cuh"

namespace spark {
namespace {

struct Quantized {
  uint32_t scale;
  uint32_t codes[kNvfp4Block];
};

__device__ Quantized quantize(const float* x, int64_t first, int64_t count, float tensor_scale) {
  Run<F32> run;
  run.load(reinterpret_cast<const F32::Code*>(x), first, count);
  Quantized block;
  block.scale = nvfp4_block_scale(bits_float(run.max_bits()), tensor_scale);
  const float step = nvfp4_step(block.scale, tensor_scale);
#pragma unroll
  for (int i = 0; i < kNvfp4Block; ++i) block.codes[i] = nvfp4_code(F32::decode(run.codes[i]), step);
  return block;
}

// The tensor scale, after the first thread has stored what the product is multiplied by.
__device__ float take_scale(const Nvfp4ActivationArgs& args, int64_t at) {
  const float tensor_scale = nvfp4_tensor_scale(args.amax[0]);
  if (at == 0) {
    args.factors[0] = multiply(tensor_scale, args.w_scale);
    args.factors[1] = 0;
  }
  return tensor_scale;
}

}  // namespace
}  // namespace spark

extern "C" __global__ void nvfp4_activation_codes(spark::Nvfp4ActivationArgs args) {
  using namespace spark;
  const int64_t across = padded_depth(args.cols / 4) / 4, blocks = args.cols / kNvfp4Block;
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = at / across, block = at % across;
  const float tensor_scale = take_scale(args, at);
  if (row >= (args.rows + 127) / 128 * 128) return;
  uint32_t scale = 0;
  if (row < args.rows) {
    Packed packed{};
    if (block < blocks) {
      const Quantized quantized =
          quantize(args.x, (row * blocks + block) * kNvfp4Block, args.rows * args.cols, tensor_scale);
      scale = quantized.scale;
#pragma unroll
      for (int i = 0; i < kPackedBytes; ++i) {
        packed.pairs[i] = static_cast<uint8_t>(quantized.codes[2 * i] | quantized.codes[2 * i + 1] << 4);
      }
    }
    reinterpret_cast<Packed*>(args.codes)[at] = packed;
  }
  if (block < (blocks + 3) / 4 * 4) {
    args.scales[swizzled_index(row, block, blocks)] = static_cast<uint8_t>(scale);
  }
}

extern "C" __global__ void nvfp4_activation_bf16(spark::Nvfp4ActivationArgs args) {
  using namespace spark;
  const int64_t across = padded_depth(args.cols) / kNvfp4Block, blocks = args.cols / kNvfp4Block;
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = at / across, block = at % across;
  const float tensor_scale = take_scale(args, at);
  if (row >= args.rows) return;
  Eight halves[2] = {};
  if (block < blocks) {
    const Quantized quantized =
        quantize(args.x, (row * blocks + block) * kNvfp4Block, args.rows * args.cols, tensor_scale);
    const float scale = E4M3::decode(quantized.scale);
#pragma unroll
    for (int i = 0; i < kNvfp4Block / 2; ++i) {
      const float low = nvfp4_value(quantized.codes[2 * i], scale);
      halves[i / 4].pairs[i % 4] = round_pair(low, nvfp4_value(quantized.codes[2 * i + 1], scale));
    }
  }
  Eight* out = reinterpret_cast<Eight*>(args.codes) + 2 * at;
  out[0] = halves[0];
  out[1] = halves[1];
}
