// conv_non_overlapping.cc: transposed convolutions as one product [C · taps, O] x [O, positions], whose tiles
// go from depth to space.
#include "backend/cpu/conv/conv_non_overlapping.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/conv/padded_input.h"
#include "backend/cpu/gemm/gemm_kernels.h"
#include "backend/cpu/gemm/product.h"

namespace spark::cpu {
namespace {

// to[x · width + j] = sums[j · kTile + x] + bias for x < count and j < taps
void interleave(const float* sums, int64_t count, int64_t taps, int64_t width, float bias, float* to) {
  if (taps == 2 && width == 2) {
    for (int64_t x = 0; x < count; ++x) {
      to[2 * x] = sums[x] + bias;
      to[2 * x + 1] = sums[kTile + x] + bias;
    }
    return;
  }
  for (int64_t j = 0; j < taps; ++j) {
    for (int64_t x = 0; x < count; ++x) to[x * width + j] = sums[j * kTile + x] + bias;
  }
}

// Positions [tile.col, tile.col + tile.cols) of the images, of `taps` neighbours in a line of the kernel; the
// first of them is row `row` of the product.
void store_taps(const ConvShape& shape, const Region& tile, int64_t row, int64_t taps, const float* sums,
                float bias, float* dx) {
  const auto& [depth, height, width] = shape.out;
  const auto& kernel = shape.kernel;
  const int64_t tap = row % numel(kernel), channel = row / numel(kernel), last = tap % kernel[2];
  const int64_t tap_y = tap / kernel[2] % kernel[1], tap_z = tap / kernel[2] / kernel[1];
  for (int64_t done = 0; done < tile.cols;) {
    const int64_t col = tile.col + done, x = col % width, run = std::min(width - x, tile.cols - done);
    const int64_t y = col / width % height, z = col / width / height % depth, n = col / numel(shape.out);
    const int64_t plane = (n * shape.channels + channel) * shape.image[0] + z * kernel[0] + tap_z;
    const int64_t line = plane * shape.image[1] + y * kernel[1] + tap_y;
    interleave(sums + done, run, taps, kernel[2], bias, dx + line * shape.image[2] + x * kernel[2] + last);
    done += run;
  }
}

}  // namespace

bool is_non_overlapping(const ConvShape& shape) {
  if (shape.groups != 1) return false;
  for (int i = 0; i < 3; ++i) {
    const int64_t kernel = shape.kernel[i];
    if (shape.stride[i] != kernel || shape.pad[i] != 0 || shape.image[i] != shape.out[i] * kernel)
      return false;
    if (kernel > 1 && shape.dilation[i] != 1) return false;
  }
  return true;
}

void transposed_non_overlapping(const float* weight, const ConvShape& shape, const float* dy,
                                const float* bias, float* dx) {
  const int64_t positions = numel(shape.out), taps = numel(shape.kernel), rows = shape.channels * taps;
  std::vector<int64_t> filters(shape.filters);
  for (int64_t o = 0; o < shape.filters; ++o) filters[o] = o * positions;
  const Patches images = {
      dy, filters.data(), {shape.batch, 1, 1, positions}, {shape.filters * positions, 0, 0}, false};
  const Segment segment = {columns_of(weight, rows), columns_of(images), shape.filters};
  product_tiles(rows, shape.batch * positions, segment, [&](const Region& tile, const float* sums) {
    const int64_t width = shape.kernel[2];
    for (int64_t done = 0; done < tile.rows;) {
      const int64_t row = tile.row + done, some = std::min(width - row % width, tile.rows - done);
      const float added = bias ? bias[row / taps] : 0.0f;
      store_taps(shape, tile, row, some, sums + done * kTile, added, dx);
      done += some;
    }
  });
}

}  // namespace spark::cpu
