// nvfp4.cc: quantization to NVFP4 and back.
#include "backend/cpu/quantize/nvfp4.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/quantize/formats.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1024;  // blocks a thread takes at a time

}  // namespace

// A block never crosses the end of a row, so a matrix is one run of blocks.

void nvfp4_quantize(const Nvfp4QuantizeArgs& args) {
  check_wide_format("nvfp4_quantize", args.src_dtype);
  parallel_for(args.rows * args.cols / kNvfp4Block, kGrain,
               [&](int64_t begin, int64_t end) { kernels().precision.nvfp4_quantize(args, begin, end); });
}

void nvfp4_dequantize(const Nvfp4DequantizeArgs& args) {
  parallel_for(args.rows * args.cols / kNvfp4Block, kGrain,
               [&](int64_t begin, int64_t end) { kernels().precision.nvfp4_dequantize(args, begin, end); });
}

std::vector<float> rounded_to_nvfp4(const float* x, int64_t rows, int64_t cols) {
  std::vector<float> rounded(rows * cols);
  std::vector<uint8_t> packed(rows * cols / 2), block_scale(rows * cols / kNvfp4Block);
  float largest;
  amax({DType::kF32, rows * cols, x, &largest});
  const float tensor_scale = nvfp4_tensor_scale(largest);
  nvfp4_quantize({DType::kF32, rows, cols, Nvfp4Recipe::kModelopt, tensor_scale, 0, x, packed.data(),
                  block_scale.data()});
  nvfp4_dequantize({rows, cols, tensor_scale, packed.data(), block_scale.data(), rounded.data()});
  return rounded;
}

}  // namespace spark::cpu
