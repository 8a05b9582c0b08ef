// warp_frames.cc: launcher of WarpFrames.
#include "backend/cuda/cuda.h"
#include "backend/cuda/ops/strided.h"

namespace spark::cuda {

void warp_frames(const WarpFramesArgs& args) {
  const int64_t pixels = args.frames * 6 * (args.out_height / 2) * (args.out_width / 2);
  launch("warp_frames", "warp_frames_u8", threads_for(pixels), Threads{kViewThreads}, 0, args);
}

}  // namespace spark::cuda
