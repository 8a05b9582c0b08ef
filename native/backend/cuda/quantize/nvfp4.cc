// nvfp4.cc: launchers of NVFP4 quantization.
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "core/quantizers.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 128;  // a thread holds a block of 16 in registers

const char* recipe_name(Nvfp4Recipe recipe) {
  switch (recipe) {
    case Nvfp4Recipe::kTe:
      return "te_";
    case Nvfp4Recipe::kMse:
      return "mse_";
    default:
      return "modelopt_";
  }
}

}  // namespace

void nvfp4_quantize(const Nvfp4QuantizeArgs& args) {
  const int64_t blocks = args.rows * args.cols / kNvfp4Block;
  const float scale = args.recipe == Nvfp4Recipe::kTe ? args.encode_scale : args.tensor_scale;
  launch("nvfp4", std::string("nvfp4_quantize_") + recipe_name(args.recipe) + dtype_name(args.src_dtype),
         Grid{ceil_div(blocks, kThreads)}, Threads{kThreads}, 0, args.src, blocks, scale, args.packed,
         args.block_scale);
}

void nvfp4_dequantize(const Nvfp4DequantizeArgs& args) {
  const int64_t blocks = args.rows * args.cols / kNvfp4Block;
  launch("nvfp4", "nvfp4_dequantize_f32", Grid{ceil_div(blocks, kThreads)}, Threads{kThreads}, 0, args.packed,
         args.block_scale, blocks, args.tensor_scale, args.dst);
}

}  // namespace spark::cuda
