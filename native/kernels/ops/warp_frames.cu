// warp_frames.cu: frames of a camera as driving models read them. One thread per byte of y.
// Reference: native/backend/cpu/ops/warp_frames.cc; the pixel is shared (backend/warp_pixel.h)
#include "backend/warp_pixel.h"
#include "kernels/ops/strided.cuh"

extern "C" __global__ void warp_frames_u8(spark::WarpFramesArgs args) {
  const int64_t i = spark::thread_index();
  const int64_t height = args.out_height / 2, width = args.out_width / 2;
  if (i >= args.frames * 6 * height * width) return;
  const int64_t line = i / width, plane = line / height;
  const uint8_t* frame = args.x + plane / 6 * args.frame_bytes;
  args.y[i] = frame[spark::PixelProjection(args, plane % 6).offset(line % height, i % width)];
}
