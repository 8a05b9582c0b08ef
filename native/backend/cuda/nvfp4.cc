#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "core/quantizers.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 128;  // a thread holds a block of 16 in registers

}  // namespace

void nvfp4_quantize(const Nvfp4QuantizeArgs& args) {
  const int64_t blocks = args.rows * args.cols / kNvfp4Block;
  launch("nvfp4", std::string("nvfp4_quantize_") + dtype_name(args.src_dtype),
         Grid{ceil_div(blocks, kThreads)}, Threads{kThreads}, 0, args.src, blocks, args.tensor_scale,
         args.packed, args.block_scale);
}

void nvfp4_dequantize(const Nvfp4DequantizeArgs& args) {
  const int64_t blocks = args.rows * args.cols / kNvfp4Block;
  launch("nvfp4", "nvfp4_dequantize_f32", Grid{ceil_div(blocks, kThreads)}, Threads{kThreads}, 0, args.packed,
         args.block_scale, blocks, args.tensor_scale, args.dst);
}

}  // namespace spark::cuda
