// pool_bytes.cc: int8 max pooling.
#include "backend/cpu/ops/pool_bytes.h"

#include <algorithm>

#include "backend/cpu/conv/conv_reading.h"
#include "backend/cpu/conv/padded_bytes.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr int64_t kRun = 4096;  // positions at a time

// Windows as a convolution of one plane reads them.
ConvShape reading_of(const Windows& windows) {
  ConvShape shape{1, 1, 1, 1, {}, {}, {}, {}, {}, {}};
  std::copy_n(windows.image, 3, shape.image);
  std::copy_n(windows.kernel, 3, shape.kernel);
  std::copy_n(windows.out, 3, shape.out);
  std::copy_n(windows.stride, 3, shape.stride);
  std::copy_n(windows.dilation, 3, shape.dilation);
  std::copy_n(windows.pad, 3, shape.pad);
  return shape;
}

}  // namespace

void largest_bytes(const PoolArgs& args) {
  const ConvShape shape = reading_of(args.windows);
  const ConvReading reading(shape);
  const PaddedInput& input = reading.input();
  const std::vector<int64_t>& taps = reading.taps();
  const uint8_t flip = args.dtype == DType::kI8 ? 0x80 : 0;  // makes signed bytes compare as unsigned ones
  const int64_t height = shape.out[1], width = shape.out[2];
  const int64_t image = numel(shape.image), lines = shape.out[0] * height;
  if (lines * width == 0) return;
  const int64_t bytes = padded_floats(input.plane(), 1) + kByteOverrun;
  parallel_tasks(args.windows.planes, (bytes + 3) / 4, [&](int64_t n, float* floats) {
    auto* padded = reinterpret_cast<uint8_t*>(floats);
    uint8_t max[kRun + kByteOverrun];
    pad_bytes(input, static_cast<const uint8_t*>(args.x) + n * image, flip, padded);
    std::fill_n(padded + input.plane(), kByteOverrun, 0);
    for (int64_t i = 0; flip && i < input.plane(); ++i) padded[i] ^= flip;
    uint8_t* y = static_cast<uint8_t*>(args.y) + n * lines * width;
    for (int64_t line = 0; line < lines; ++line) {
      const uint8_t* from = padded + line / height * input.pitch(0) + line % height * input.pitch(1);
      for (int64_t x = 0; x < width; x += kRun) {
        const int64_t count = std::min(kRun, width - x);
        kernels().bytes.max_windows(from + x, taps.data(), static_cast<int64_t>(taps.size()), count, max);
        for (int64_t i = 0; i < count; ++i) y[line * width + x + i] = max[i] ^ flip;
      }
    }
  });
}

}  // namespace spark::cpu
