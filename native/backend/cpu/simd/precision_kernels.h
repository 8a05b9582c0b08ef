// precision_kernels.h: the inner loops of casts and quantizers.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// Formats were checked by the caller: "wide" is f32, f16 or bf16.
struct PrecisionKernels {
  // dst[i] = src[i] in another format, i < count. `past_cache`: dst will not be in a cache when it is read,
  // so its memory need not be read before it is written.
  void (*cast)(DType src_dtype, DType dst_dtype, bool saturate, bool past_cache, const void* src, void* dst,
               int64_t count);
  // max |src[i]|, i < count, wide; NaN (7FC00000) when any is NaN.
  float (*amax)(DType dtype, const void* src, int64_t count);
  // Blocks [begin, end) of 16 elements; a block never crosses the end of a row, so rows do not matter.
  void (*nvfp4_quantize)(const Nvfp4QuantizeArgs& args, int64_t begin, int64_t end);
  void (*nvfp4_dequantize)(const Nvfp4DequantizeArgs& args, int64_t begin, int64_t end);
  // codes[i] = E4M3(src[i] / scale), i < count, wide.
  void (*fp8_codes)(DType dtype, const void* src, int64_t count, float scale, uint8_t* codes);
  // pairs[i] = low[i] and high[i] in bf16, low in the lower half, i < count.
  void (*bf16_pairs)(const float* low, const float* high, int64_t count, uint32_t* pairs);
};

}  // namespace spark::cpu
