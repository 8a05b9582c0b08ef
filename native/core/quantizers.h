// quantizers.h: the arithmetic of the NVFP4 and FP8 quantizers, one operation after the other as
// docs/numerics.md writes it. Shared by the CPU and the CUDA kernels.
#pragma once

#include "core/float_formats.h"

namespace spark {

constexpr int kNvfp4Block = 16;  // elements that share a block scale

enum class Nvfp4Recipe : uint8_t { kModelopt, kTe, kMse };

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

// 1 / value, at most the largest f32.
SPARK_HOST_DEVICE inline float finite_reciprocal(float value) {
  const float reciprocal = divide(1.0f, value);
  return reciprocal < 0x1.fffffep127f ? reciprocal : 0x1.fffffep127f;
}

// Tensor scale of a row of activations whose largest magnitude is `amax`: the next power of two from amax /
// 2688 on, at least 2^-100, so that bf16 holds code · block scale · tensor scale; NaN where amax is not
// finite.
SPARK_HOST_DEVICE inline float nvfp4_row_scale(float amax) {
  const float least = divide(amax, 2688.0f);
  if (!(least < bits_float(kInfinityBits))) return bits_float(kNaNBits);
  return least < 0x1p-100f ? 0x1p-100f : bits_float((float_bits(least) + 0x007FFFFF) & kInfinityBits);
}

// E4M3 scale of a block whose largest magnitude is `amax`: modelopt.
SPARK_HOST_DEVICE inline uint32_t nvfp4_block_scale(float amax, float tensor_scale) {
  float scale = divide(amax, multiply(6.0f, tensor_scale));
  if (scale == 0.0f) scale = 1.0f;
  if (scale < 0x1p-9f) scale = 0x1p-9f;
  return E4M3::encode(scale, E4M3::limit(true));
}

// What an E2M1 code of the block is multiplied by.
SPARK_HOST_DEVICE inline float nvfp4_step(uint32_t block_scale, float tensor_scale) {
  return multiply(E4M3::decode(block_scale), tensor_scale);
}

// E2M1 code of a quotient. -0 has code 0; a negative number that rounds to zero has code 8.
SPARK_HOST_DEVICE inline uint32_t nvfp4_quotient_code(float quotient) {
  const uint32_t magnitude = E2M1::encode(quotient, E2M1::limit(true)) & 7u;
  return magnitude | (quotient < 0.0f ? 8u : 0u);
}

SPARK_HOST_DEVICE inline uint32_t nvfp4_code(float value, float step) {
  return nvfp4_quotient_code(divide(value, step));
}

// The same as nvfp4_code with a factor instead of a divisor (te).
SPARK_HOST_DEVICE inline uint32_t nvfp4_te_code(float value, float factor) {
  return nvfp4_quotient_code(multiply(value, factor));
}

// te: E4M3 scale of a block. `encode_scale` is 2688 / the largest magnitude of the tensor.
SPARK_HOST_DEVICE inline uint32_t nvfp4_te_block_scale(float amax, float encode_scale) {
  return E4M3::encode(multiply(amax, multiply(encode_scale, 1.0f / 6.0f)), E4M3::limit(true));
}

// te: what the values of a block are multiplied by.
SPARK_HOST_DEVICE inline float nvfp4_te_factor(uint32_t block_scale, float encode_scale) {
  return finite_reciprocal(multiply(E4M3::decode(block_scale), divide(1.0f, encode_scale)));
}

// The E2M1 number nearest to a value that is not negative.
SPARK_HOST_DEVICE inline float nvfp4_nearest(float value) {
  // Adding a power of two whose last bit is the distance of neighbours makes the adder round: 0.5 below 2,
  // then half the power of two below the value. Beyond 6 nothing matters, not even an anchor that overflows.
  const uint32_t power = float_bits(value) & kInfinityBits, one = 0x3F800000;
  const float anchor = bits_float((power > one ? power : one) + (22u << 23));
  const float rounded = value + anchor - anchor;
  return rounded < 6.0f ? rounded : 6.0f;
}

// mse: what the values of a block are multiplied by to weigh `block_scale`.
SPARK_HOST_DEVICE inline float nvfp4_mse_factor(uint32_t block_scale, float tensor_scale) {
  return finite_reciprocal(nvfp4_step(block_scale, tensor_scale));
}

// mse: squared error of a value in steps.
SPARK_HOST_DEVICE inline float nvfp4_squared_error(float value, float factor) {
  const float quotient = bits_float(float_bits(multiply(value, factor)) & 0x7FFFFFFF);
  const float error = quotient - nvfp4_nearest(quotient);
  return multiply(error, error);
}

// mse: squared error of a block in units of the tensor scale, `sum` being that in steps.
SPARK_HOST_DEVICE inline float nvfp4_error(float sum, uint32_t block_scale) {
  const float scale = E4M3::decode(block_scale);
  return multiply(sum, multiply(scale, scale));
}

// mse: the scales that are tried, 2 codes below nvfp4_block_scale's to 6 above. That one is tried first.
constexpr int kMseCandidates = 9;
SPARK_HOST_DEVICE inline uint32_t nvfp4_mse_candidate(uint32_t start, int index) {
  const int offset = index == 0 ? 0 : index <= 2 ? index - 3 : index - 2;
  const int code = static_cast<int>(start) + offset, at_least = code < 1 ? 1 : code;
  return at_least > 0x7E ? 0x7E : at_least;
}

// What a code stands for. Adding 0 makes +0 of the -0 that is code 8, as ModelOpt does.
SPARK_HOST_DEVICE inline float nvfp4_value(uint32_t code, float step) {
  return multiply(E2M1::decode(code) + 0.0f, step);
}

// Scale of E4M3 elements whose largest magnitude is `amax`.
SPARK_HOST_DEVICE inline float fp8_scale(float amax) {
  const float scale = divide(amax, 448.0f);
  return scale == 0.0f ? 1.0f : scale;
}

SPARK_HOST_DEVICE inline uint8_t fp8_code(float value, float scale) {
  return E4M3::encode(divide(value, scale), E4M3::limit(true));
}

}  // namespace spark
