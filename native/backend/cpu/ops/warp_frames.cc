// warp_frames.cc: WarpFrames: frames of a camera as driving models read them. Where a pixel comes from is
// computed once for all frames.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/warp_pixel.h"
#include "core/thread_pool.h"

namespace spark::cpu {

namespace {

// Pixels whose offsets are kept at a time.
constexpr int64_t kBlock = 256;

void warp_line(const WarpFramesArgs& args, int64_t line, int64_t height, int64_t width) {
  const int64_t channel = line / height, row = line % height;
  const PixelProjection projection(args, channel);
  int64_t offsets[kBlock];
  for (int64_t first = 0; first < width; first += kBlock) {
    const int64_t count = std::min(kBlock, width - first);
    for (int64_t i = 0; i < count; ++i) offsets[i] = projection.offset(row, first + i);
    for (int64_t n = 0; n < args.frames; ++n) {
      const uint8_t* frame = args.x + n * args.frame_bytes;
      uint8_t* y = args.y + (n * 6 * height + line) * width + first;
      for (int64_t i = 0; i < count; ++i) y[i] = frame[offsets[i]];
    }
  }
}

}  // namespace

void warp_frames(const WarpFramesArgs& args) {
  const int64_t height = args.out_height / 2, width = args.out_width / 2;
  const int64_t work = (8 + 2 * args.frames) * width;
  parallel_for(6 * height, grain_for(work, 1 << 12), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) warp_line(args, line, height, width);
  });
}

}  // namespace spark::cpu
