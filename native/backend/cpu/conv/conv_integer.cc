// conv_integer.cc: convolutions of bytes, as dot-product GEMM (dot_kernels.h) over a padded input, or as
// plain loops where a group has few filters. x is moved by 128 where it is signed, and its zero point with
// it:
//   Σ (x − p)(w − q) = Σ xw − q·Σx − p·(Σw − K·q), modulo 2^32
#include <algorithm>
#include <vector>

#include "backend/cpu/conv/conv_dot_gemm.h"
#include "backend/cpu/conv/padded_bytes.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/integer_result.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

constexpr int64_t kRun = 4096;  // positions of a plain loop at a time

// What all tasks share.
struct Convolution {
  const ConvIntegerArgs& args;
  ConvReading reading;
  int64_t channels, lines, positions, depth, pixels;
  uint8_t flip, outside;
  std::vector<uint32_t> shift;  // [O]: what is added to the sums of a filter

  explicit Convolution(const ConvIntegerArgs& given)
      : args(given),
        reading(given.shape),
        channels(given.shape.channels / given.shape.groups),
        lines(given.shape.filters / given.shape.groups),
        positions(numel(given.shape.out)),
        depth(channels * numel(given.shape.kernel)),
        pixels(numel(given.shape.image)),
        flip(given.x_signed ? 0x80 : 0),
        outside(static_cast<uint8_t>(given.x_zero ? given.x_zero[0] : 0)),
        shift(given.shape.filters) {
    const uint32_t zero = (args.x_zero ? args.x_zero[0] : 0) + flip;
    for (int64_t o = 0; o < given.shape.filters; ++o) {
      const uint32_t weights = w_sum(o) - static_cast<uint32_t>(depth) * w_zero(o);
      shift[o] = (args.bias ? args.bias[o] : 0) - zero * weights;
    }
  }

  const int8_t* row(int64_t o) const { return args.w + o * padded_bytes(depth); }
  uint32_t w_zero(int64_t o) const { return args.w_zero ? args.w_zero[o] : 0; }
  uint32_t w_sum(int64_t o) const {
    if (args.w_sum) return args.w_sum[o];
    uint32_t sum = 0;
    for (int64_t k = 0; k < depth; ++k) sum += row(o)[k];
    return sum;
  }

  // Planes [first, first + count) of x as they are read.
  void pad(int64_t first, int64_t count, uint8_t* planes) const {
    const auto* x = static_cast<const uint8_t*>(args.x);
    for (int64_t i = 0; i < count; ++i) {
      pad_bytes(reading.input(), x + (first + i) * pixels, outside, planes + i * reading.input().plane());
    }
  }
};

// Products with the positions of an image as columns.
class Product {
 public:
  explicit Product(const Convolution& convolution)
      : convolution_(convolution), gemm_(convolution.args.shape, convolution.reading) {
    for (int64_t o = 0; o < convolution.args.shape.filters; ++o) has_zeros_ |= convolution.w_zero(o) != 0;
    if (has_zeros_) {
      ones_.resize(padded_bytes(convolution.depth));
      std::fill_n(ones_.begin(), convolution.depth, 1);
    }
  }

  // Images [first, first + count), whose planes begin at `data`.
  void run(int64_t first, int64_t count, const uint8_t* data) const {
    gemm_.for_each_tile(first, count, data,
                        [&](const ConvTile& tile, const uint8_t* planes, uint32_t* panels) {
                          compute(tile, planes, panels);
                        });
  }

 private:
  void multiply(const void* rows, int64_t m, const uint32_t* panel, int64_t cols, int32_t* sums) const {
    gemm_.multiply(kernels().dot.signed_bytes, static_cast<const uint32_t*>(rows),
                   padded_bytes(convolution_.depth) / 4, m, panel, cols, sums);
  }

  void compute(const ConvTile& tile, const uint8_t* data, uint32_t* panels) const {
    alignas(64) int32_t sums[kRowsAtOnce * kTile], x_sums[kTile];
    if (has_zeros_) std::fill_n(x_sums, kTile, 0);
    const auto interleave = [&](const uint8_t* const(&bytes)[4], int64_t count, uint32_t* to) {
      kernels().bytes.interleave(bytes, count, convolution_.flip, to);
    };
    gemm_.for_each_panel(tile, panels, [&](int64_t at, int64_t count, uint32_t* panel) {
      gemm_.pack(tile.col + at, count, data, interleave, panel);
      if (has_zeros_) multiply(ones_.data(), 1, panel, count, x_sums + at);
    });
    for (int64_t done = 0; done < tile.rows; done += kRowsAtOnce) {
      const int64_t some = std::min(kRowsAtOnce, tile.rows - done);
      std::fill_n(sums, some * kTile, 0);
      gemm_.for_each_panel(tile, panels, [&](int64_t at, int64_t count, const uint32_t* panel) {
        multiply(convolution_.row(tile.row + done), some, panel, count, sums + at);
      });
      for (int64_t i = 0; i < some; ++i) store(tile, tile.row + done + i, sums + i * kTile, x_sums);
    }
  }

  void store(const ConvTile& tile, int64_t o, int32_t* sums, const int32_t* x_sums) const {
    if (const uint32_t zero = convolution_.w_zero(o)) {
      for (int64_t j = 0; j < tile.cols; ++j) {
        sums[j] = static_cast<int32_t>(sums[j] - zero * static_cast<uint32_t>(x_sums[j]));
      }
    }
    const int64_t at = (tile.image * convolution_.args.shape.filters + o) * convolution_.positions + tile.col;
    store_sums(convolution_.args.result, o, sums, tile.cols, convolution_.shift[o], at);
  }

  const Convolution& convolution_;
  ConvDotGemm<uint8_t, 4> gemm_;
  bool has_zeros_ = false;
  std::vector<int8_t> ones_;  // where there are zero points
};

void multiply(const Convolution& convolution) {
  const Product product(convolution);
  const ConvShape& shape = convolution.args.shape;
  for_each_padded(
      shape, convolution.reading.input(), static_cast<const uint8_t*>(convolution.args.x),
      [&](int64_t first, int64_t count, uint8_t* planes) { convolution.pad(first, count, planes); },
      [&](int64_t first, int64_t count, const uint8_t* data) { product.run(first, count, data); });
}

// Rows of whole lines are taken as they lie in the padded input, what is between them included, which is left
// out when they are stored.
class Loop {
 public:
  explicit Loop(const Convolution& convolution) : convolution_(convolution) {
    const PaddedInput& input = convolution.reading.input();
    for (int64_t c = 0; c < convolution.channels; ++c) {
      for (const int64_t tap : convolution.reading.taps()) rows_.push_back(c * input.plane() + tap);
    }
    bytes_ = padded_floats(input.plane(), convolution.channels) + kByteOverrun;
  }

  int64_t workspace_floats() const { return convolution_.depth + (bytes_ + 3) / 4; }

  // A group of an image. The workspace is that of the weights of a filter and of the group's planes.
  void run(int64_t image, int64_t group, float* floats) const {
    const ConvShape& shape = convolution_.args.shape;
    auto* weights = reinterpret_cast<int32_t*>(floats);
    auto* workspace = reinterpret_cast<uint8_t*>(weights + convolution_.depth);
    convolution_.pad((image * shape.groups + group) * convolution_.channels, convolution_.channels,
                     workspace);
    std::fill_n(workspace + bytes_ - kByteOverrun, kByteOverrun, 0);
    if (convolution_.flip) {
      for (int64_t i = 0; i < bytes_; ++i) workspace[i] ^= convolution_.flip;
    }
    for (int64_t o = group * convolution_.lines; o < (group + 1) * convolution_.lines; ++o) {
      for (int64_t k = 0; k < convolution_.depth; ++k) {
        weights[k] = static_cast<int32_t>(convolution_.row(o)[k] - convolution_.w_zero(o));
      }
      for (int64_t z = 0; z < shape.out[0]; ++z) {
        filter(image, o, z, weights, workspace + z * convolution_.reading.input().pitch(0));
      }
    }
  }

 private:
  void filter(int64_t image, int64_t o, int64_t z, const int32_t* weights, const uint8_t* data) const {
    const auto [depths, heights, width] = convolution_.args.shape.out;
    const int64_t pitch = convolution_.reading.input().pitch(1), at_once = std::max<int64_t>(1, kRun / pitch);
    alignas(64) int32_t sums[kRun + kByteOverrun];
    for (int64_t y = 0; y < heights; y += at_once) {
      const int64_t lines = std::min(at_once, heights - y);
      for (int64_t x = 0; x < width; x += kRun) {
        const int64_t across = std::min(kRun, width - x), count = (lines - 1) * pitch + across;
        kernels().bytes.correlate(weights, data + y * pitch + x, rows_.data(), convolution_.depth, count,
                                  sums);
        close_gaps(sums, lines, pitch, across);
        const int64_t line = (image * convolution_.args.shape.filters + o) * depths + z;
        store_sums(convolution_.args.result, o, sums, lines * across, convolution_.shift[o],
                   (line * heights + y) * width + x);
      }
    }
  }

  static void close_gaps(int32_t* sums, int64_t lines, int64_t pitch, int64_t width) {
    if (pitch == width) return;
    for (int64_t y = 1; y < lines; ++y) std::copy_n(sums + y * pitch, width, sums + y * width);
  }

  const Convolution& convolution_;
  std::vector<int64_t> rows_;
  int64_t bytes_;
};

}  // namespace

void conv_integer(const ConvIntegerArgs& args) {
  const ConvShape& shape = args.shape;
  if (shape.batch * shape.filters * numel(shape.out) == 0) return;
  const Convolution convolution(args);
  if (!loops_over(shape.groups, convolution.lines)) return multiply(convolution);
  const Loop loop(convolution);
  const int64_t work = convolution.lines * convolution.positions * convolution.depth;
  run_tasks(shape.batch * shape.groups, work, loop.workspace_floats(), [&](int64_t index, float* workspace) {
    loop.run(index / shape.groups, index % shape.groups, workspace);
  });
}

}  // namespace spark::cpu
