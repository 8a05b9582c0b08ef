#include "backend/cpu/cpu.h"

namespace spark::cpu {

const Backend& backend() {
  static const Backend table = {
      .name = "cpu",
      .cast = cast,
      .amax = amax,
      .nvfp4_quantize = nvfp4_quantize,
      .nvfp4_dequantize = nvfp4_dequantize,
      .fp8_quantize = fp8_quantize,
      .linear = nullptr,
      .linear_backward = nullptr,
      .weight_norm2 = nullptr,
      .dora_norm = nullptr,
      .dora_forward = nullptr,
      .dora_backward = nullptr,
      .dora_merge = nullptr,
      .dora_unmerge = nullptr,
      .softmax_cross_entropy = nullptr,
      .adamw = nullptr,
  };
  return table;
}

}  // namespace spark::cpu
