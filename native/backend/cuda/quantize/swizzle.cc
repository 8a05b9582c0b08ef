// swizzle.cc: launcher of the scale layout of cuBLASLt.
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {

void swizzle_scales(const SwizzleScalesArgs& args) {
  constexpr int kThreads = 256;
  const int64_t scales = ceil_div(args.rows, 128) * ceil_div(args.cols, 4) * 512;  // of whole tiles
  launch("swizzle", "swizzle_scales", Grid{ceil_div(scales, kThreads)}, Threads{kThreads}, 0, args);
}

}  // namespace spark::cuda
