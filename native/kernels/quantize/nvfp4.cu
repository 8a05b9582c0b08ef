// nvfp4.cu: NVFP4 by the recipes of docs/numerics.md: packed[blocks, 8], block_scale[blocks] of
// src[blocks, 16], and back to f32. A block never crosses the end of a row, so rows do not matter.
// One thread per block of 16. No FP4 instructions: these kernels give the same bits on every architecture.
// Reference: native/backend/cpu/simd/precision_kernels_body.h
#include "kernels/quantize/nvfp4.cuh"

namespace spark {

// The best scale for a block, `start` being that of modelopt.
__device__ uint32_t search_scale(const float* values, uint32_t start, float tensor_scale) {
  uint32_t best = start;
  float least = bits_float(kInfinityBits);
  for (int candidate = 0; candidate < kMseCandidates; ++candidate) {
    const uint32_t scale = nvfp4_mse_candidate(start, candidate);
    const float factor = nvfp4_mse_factor(scale, tensor_scale);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kNvfp4Block; ++i) sum += nvfp4_squared_error(values[i], factor);
    const float error = nvfp4_error(sum, scale);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

// `scale` is the tensor scale, for te the encode scale.
template <typename Src, Nvfp4Recipe kRecipe>
__device__ void quantize_block(const typename Src::Code* src, int64_t blocks, float scale, uint8_t* packed,
                               uint8_t* block_scale) {
  const int64_t block = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (block >= blocks) return;
  Run<Src> run;
  run.load(src, block * kNvfp4Block, blocks * kNvfp4Block);
  float values[kNvfp4Block];
#pragma unroll
  for (int i = 0; i < kNvfp4Block; ++i) values[i] = Src::decode(run.codes[i]);
  const float amax = bits_float(run.max_bits());
  constexpr bool kTe = kRecipe == Nvfp4Recipe::kTe;
  uint32_t chosen = kTe ? nvfp4_te_block_scale(amax, scale) : nvfp4_block_scale(amax, scale);
  if (kRecipe == Nvfp4Recipe::kMse) chosen = search_scale(values, chosen, scale);
  const float multiplier = kTe ? nvfp4_te_factor(chosen, scale) : nvfp4_step(chosen, scale);
  Packed out;
#pragma unroll
  for (int i = 0; i < kPackedBytes; ++i) {
    const float low = values[2 * i], high = values[2 * i + 1];
    out.pairs[i] =
        static_cast<uint8_t>(kTe ? nvfp4_te_code(low, multiplier) | nvfp4_te_code(high, multiplier) << 4
                                 : nvfp4_code(low, multiplier) | nvfp4_code(high, multiplier) << 4);
  }
  out.store(packed + block * kPackedBytes);
  block_scale[block] = static_cast<uint8_t>(chosen);
}

}  // namespace spark

#define SPARK_QUANTIZE(recipe_name, recipe, src_name, Src)                                                  \
  extern "C" __global__ void nvfp4_quantize_##recipe_name##_##src_name(                                     \
      const spark::Src::Code* src, int64_t blocks, float scale, uint8_t* packed, uint8_t* block_scale) {    \
    spark::quantize_block<spark::Src, spark::Nvfp4Recipe::recipe>(src, blocks, scale, packed, block_scale); \
  }

#define SPARK_QUANTIZE_BY(recipe_name, recipe)  \
  SPARK_QUANTIZE(recipe_name, recipe, f32, F32) \
  SPARK_QUANTIZE(recipe_name, recipe, f16, F16) \
  SPARK_QUANTIZE(recipe_name, recipe, bf16, BF16)

SPARK_QUANTIZE_BY(modelopt, kModelopt)
SPARK_QUANTIZE_BY(te, kTe)
SPARK_QUANTIZE_BY(mse, kMse)

extern "C" __global__ void nvfp4_dequantize_f32(const uint8_t* packed, const uint8_t* block_scale,
                                                int64_t blocks, float tensor_scale, float* dst) {
  const int64_t block = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (block >= blocks) return;
  const float step = spark::nvfp4_step(block_scale[block], tensor_scale);
  spark::Packed in;
  spark::Run<spark::F32> run;
  in.load(packed + block * spark::kPackedBytes);
#pragma unroll
  for (int i = 0; i < spark::kPackedBytes; ++i) {
    run.codes[2 * i] = spark::nvfp4_value(in.pairs[i] & 15, step);
    run.codes[2 * i + 1] = spark::nvfp4_value(in.pairs[i] >> 4, step);
  }
  run.store(dst, block * spark::kNvfp4Block, blocks * spark::kNvfp4Block);
}
