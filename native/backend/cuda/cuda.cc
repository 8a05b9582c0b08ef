#include "backend/cuda/cuda.h"

namespace spark::cuda {

const Backend& backend() {
  static const Backend table = {
      .name = "cuda",
      .cast = cast,
      .amax = amax,
      .nvfp4_quantize = nvfp4_quantize,
      .nvfp4_dequantize = nvfp4_dequantize,
      .fp8_quantize = fp8_quantize,
      .pack_weight = nullptr,
      .linear = linear,
      .linear_backward = linear_backward,
      .conv = nullptr,
      .conv_backward = nullptr,
      .conv_transpose = nullptr,
      .linear_integer = linear_integer,
      .matmul = matmul,
      .weight_norm2 = weight_norm2,
      .dora_norm = dora_norm,
      .dora_forward = dora_forward,
      .dora_mixed = dora_mixed,
      .dora_backward = dora_backward,
      .dora_merge = dora_merge,
      .dora_unmerge = dora_unmerge,
      .softmax_cross_entropy = softmax_cross_entropy,
      .adamw = adamw,
  };
  return table;
}

}  // namespace spark::cuda
