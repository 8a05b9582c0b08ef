// grid_sample.cc: GridSample: interpolation of an image at given points.
#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/grid_taps.h"
#include "core/thread_pool.h"

namespace spark::cpu {

void grid_sample(const GridSampleArgs& args) {
  const int64_t plane = args.image[0] * args.image[1] * args.image[2];
  parallel_for(args.batch * args.points, grain_for(args.channels, 1 << 8), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t batch = n / args.points, point = n % args.points;
      const GridTaps taps = grid_taps(args, args.grid + n * args.axes);
      for (int64_t channel = batch * args.channels; channel < (batch + 1) * args.channels; ++channel) {
        args.y[channel * args.points + point] = interpolated(args, taps, args.x + channel * plane);
      }
    }
  });
}

}  // namespace spark::cpu
