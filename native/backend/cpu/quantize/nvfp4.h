// nvfp4.h: activations of products in NVFP4.
#pragma once

#include <cstdint>
#include <vector>

namespace spark::cpu {

// x[rows, cols] quantized to NVFP4 with the tensor scale of its largest magnitude (modelopt), and back.
std::vector<float> rounded_to_nvfp4(const float* x, int64_t rows, int64_t cols);

}  // namespace spark::cpu
