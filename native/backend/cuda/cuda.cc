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
      .swizzle_scales = swizzle_scales,
      .pack_weight = nullptr,
      .linear = linear,
      .linear_backward = linear_backward,
      .conv = conv,
      .conv_backward = conv_backward,
      .conv_transpose = conv_transpose,
      .linear_integer = linear_integer,
      .matmul = matmul,
      .weight_norm2 = weight_norm2,
      .dora_norm = dora_norm,
      .dora_forward = dora_forward,
      .dora_mixed = dora_mixed,
      .dora_backward = dora_backward,
      .dora_merge = dora_merge,
      .dora_merge_backward = dora_merge_backward,
      .dora_unmerge = dora_unmerge,
      .softmax_cross_entropy = softmax_cross_entropy,
      .softmax = softmax,
      .softmax_backward = softmax_backward,
      .norm = norm,
      .norm_backward = norm_backward,
      .batch_statistics = batch_statistics,
      .batch_norm = batch_norm,
      .batch_norm_backward = batch_norm_backward,
      .attention = attention,
      .attention_backward = attention_backward,
      .adamw = adamw,
      .unary = unary,
      .binary = binary,
      .select = select,
      .reduce = reduce,
      .cumulate = cumulate,
      .top_k = top_k,
      .copy_strided = copy_strided,
      .gather = gather,
      .scatter = scatter,
      .pool = pool,
      .pool_backward = pool_backward,
      .resample = resample,
      .grid_sample = grid_sample,
      .recurrent = recurrent,
  };
  return table;
}

}  // namespace spark::cuda
