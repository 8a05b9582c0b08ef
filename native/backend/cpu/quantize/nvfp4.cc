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

std::vector<float> rounded_to_nvfp4(const float* x, int64_t rows, int64_t cols, float tensor_scale) {
  std::vector<float> rounded(rows * cols);
  const int64_t blocks = cols / kNvfp4Block;
  const PrecisionKernels& loops = kernels().precision;
  parallel_for(rows, 1 + kGrain / (1 + blocks), [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> packed(cols / 2), block_scale(blocks);
    for (int64_t row = begin; row < end; ++row) {
      const float* from = x + row * cols;
      const float scale =
          tensor_scale != 0 ? tensor_scale : nvfp4_row_scale(loops.amax(DType::kF32, from, cols));
      loops.nvfp4_quantize(
          {DType::kF32, 1, cols, Nvfp4Recipe::kModelopt, scale, 0, from, packed.data(), block_scale.data()},
          0, blocks);
      loops.nvfp4_dequantize({1, cols, scale, packed.data(), block_scale.data(), rounded.data() + row * cols},
                             0, blocks);
    }
  });
  return rounded;
}

}  // namespace spark::cpu
