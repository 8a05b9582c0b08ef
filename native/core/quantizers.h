// quantizers.h: the arithmetic of the NVFP4 and FP8 quantizers, one operation after the other as
// docs/numerics.md writes it. Shared by the CPU and the CUDA kernels.
#pragma once

#include "core/float_formats.h"

namespace spark {

constexpr int kNvfp4Block = 16;  // elements that share a block scale

// One rounding each: no compiler may contract or approximate them.
SPARK_HOST_DEVICE inline float multiply(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

SPARK_HOST_DEVICE inline float divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// E4M3 scale of a block whose largest magnitude is `amax`.
SPARK_HOST_DEVICE inline uint8_t nvfp4_block_scale(float amax, float tensor_scale) {
  float scale = divide(amax, multiply(6.0f, tensor_scale));
  if (scale == 0.0f) scale = 1.0f;
  if (scale < 0x1p-9f) scale = 0x1p-9f;
  return E4M3::encode(scale, E4M3::limit(true));
}

// What an E2M1 code of the block is multiplied by.
SPARK_HOST_DEVICE inline float nvfp4_step(uint8_t block_scale, float tensor_scale) {
  return multiply(E4M3::decode(block_scale), tensor_scale);
}

// E2M1 code of value / step. A quotient of -0 has code 0; a negative one that rounds to zero has code 8.
SPARK_HOST_DEVICE inline uint8_t nvfp4_code(float value, float step) {
  const float quotient = divide(value, step);
  const uint32_t magnitude = E2M1::encode(quotient, E2M1::limit(true)) & 7u;
  return static_cast<uint8_t>(magnitude | (quotient < 0.0f ? 8u : 0u));
}

// What a code stands for. Adding 0 makes +0 of the -0 that is code 8, as ModelOpt does.
SPARK_HOST_DEVICE inline float nvfp4_value(uint32_t code, float step) {
  return multiply(E2M1::decode(code) + 0.0f, step);
}

// Scale of an E4M3 row whose largest magnitude is `amax`.
SPARK_HOST_DEVICE inline float fp8_row_scale(float amax) {
  const float scale = divide(amax, 448.0f);
  return scale == 0.0f ? 1.0f : scale;
}

SPARK_HOST_DEVICE inline uint8_t fp8_code(float value, float row_scale) {
  return E4M3::encode(divide(value, row_scale), E4M3::limit(true));
}

}  // namespace spark
