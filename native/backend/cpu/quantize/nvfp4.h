// nvfp4.h: activations of products in NVFP4.
#pragma once

#include <cstdint>
#include <vector>

namespace spark::cpu {

// x[rows, cols] quantized to NVFP4 (modelopt) with a tensor scale, and back; 0: each row with
// nvfp4_row_scale.
std::vector<float> rounded_to_nvfp4(const float* x, int64_t rows, int64_t cols, float tensor_scale = 0);

}  // namespace spark::cpu
