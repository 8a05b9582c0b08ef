// grid_sample.cu: y[n, c, q] = the image x[n, c] at grid[n, q], interpolated. One thread per element of y.
// Reference: native/backend/cpu/ops/grid_sample.cc; the taps are shared (backend/grid_taps.h)
#include "backend/grid_taps.h"
#include "kernels/ops/strided.cuh"

extern "C" __global__ void grid_sample_f32(spark::GridSampleArgs args) {
  const int64_t i = spark::thread_index();
  if (i >= args.batch * args.channels * args.points) return;
  const int64_t plane = i / args.points, point = plane / args.channels * args.points + i % args.points;
  const int64_t pixels = args.image[0] * args.image[1] * args.image[2];
  const spark::GridTaps taps = spark::grid_taps(args, args.grid + point * args.axes);
  args.y[i] = spark::interpolated(args, taps, args.x + plane * pixels);
}
