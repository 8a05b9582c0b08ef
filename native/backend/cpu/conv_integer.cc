// conv_integer.cc: convolutions of bytes, as products of lanes (lane_gemm.h) over a staged image, or as plain
// loops where a group has few filters. x is moved by 128 where it is signed, and its zero point with it:
//   Σ (x − p)(w − q) = Σ xw − q·Σx − p·(Σw − K·q), modulo 2^32
#include <algorithm>
#include <memory>
#include <vector>

#include "backend/cpu/byte_stage.h"
#include "backend/cpu/conv_reading.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/integer_result.h"
#include "backend/cpu/lane_gemm.h"
#include "backend/cpu/parallel_tasks.h"

namespace spark::cpu {
namespace {

constexpr int64_t kRowsAtOnce = 32;        // filters whose sums are kept in a cache
constexpr int64_t kPackedLanes = 1 << 16;  // of a tile, which stay in a cache
constexpr int64_t kFewestRows = 64;        // filters of a task, or packing costs as much as multiplying
constexpr int64_t kGrainLanes = 1 << 15;   // dot products worth waking a thread for
constexpr int64_t kRun = 4096;             // positions of a plain loop at a time

using Bytes = std::unique_ptr<uint8_t[]>;

// body(index, room) for each task of so many dot products, as parallel_tasks does; here where there are few.
template <typename Body>
void run_tasks(int64_t count, int64_t work, int64_t floats, const Body& body) {
  if (count > 1 && count * work >= 2 * kGrainLanes) return parallel_tasks(count, floats, body);
  const std::unique_ptr<float[]> room(new float[floats]);
  for (int64_t index = 0; index < count; ++index) body(index, room.get());
}

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
        positions(volume(given.shape.out)),
        depth(channels * volume(given.shape.kernel)),
        pixels(volume(given.shape.image)),
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
  void stage(int64_t first, int64_t count, uint8_t* planes) const {
    const auto* x = static_cast<const uint8_t*>(args.x);
    for (int64_t i = 0; i < count; ++i) {
      stage_bytes(reading.stage(), x + (first + i) * pixels, outside, planes + i * reading.stage().plane());
    }
  }
};

// The positions of an output as lines of neighbours in a stage.
struct Lines {
  int64_t width, heights, pitch[2];

  Lines(const ConvShape& shape, const Stage& stage)
      : width(shape.out[2]), heights(shape.out[1]), pitch{stage.pitch(0), stage.pitch(1)} {
    if (pitch[1] == width) {  // no gaps: one line
      width *= heights;
      heights = 1;
      if (pitch[0] == width) width *= shape.out[0];
    }
  }

  // Calls body(at, offset, run) for each run of neighbours among the positions [begin, begin + count).
  template <typename Body>
  void for_each_run(int64_t begin, int64_t count, const Body& body) const {
    for (int64_t at = 0; at < count;) {
      const int64_t line = (begin + at) / width, x = (begin + at) % width;
      const int64_t run = std::min(count - at, width - x);
      body(at, line / heights * pitch[0] + line % heights * pitch[1] + x, run);
      at += run;
    }
  }
};

// Products with the positions of an image as columns.
class Product {
 public:
  explicit Product(const Convolution& convolution)
      : convolution_(convolution),
        lines_(convolution.args.shape, convolution.reading.stage()),
        lanes_((convolution.depth + 3) / 4),
        width_(std::clamp(kPackedLanes / lanes_ / kPanelRows * kPanelRows, kPanelRows, kTile)) {
    const int64_t plane = convolution.reading.stage().plane();
    for (int64_t c = 0; c < convolution.channels; ++c) {
      for (const int64_t tap : convolution.reading.taps()) rows_.push_back(c * plane + tap);
    }
    rows_.resize(lanes_ * 4, rows_.back());  // the weight goes on with zeros
    const int64_t tiles = (convolution.positions + width_ - 1) / width_;
    height_ = convolution.lines;
    while (tiles * ((convolution.lines + height_ - 1) / height_) < 2 * thread_count() &&
           height_ >= 2 * kFewestRows) {
      height_ = (height_ + 1) / 2;
    }
    for (int64_t o = 0; o < convolution.args.shape.filters; ++o) has_zeros_ |= convolution.w_zero(o) != 0;
    if (has_zeros_) {
      ones_.resize(padded_bytes(convolution.depth));
      std::fill_n(ones_.begin(), convolution.depth, 1);
    }
  }

  // Images [first, first + count), whose planes begin at `data`.
  void run(int64_t first, int64_t count, const uint8_t* data) const {
    const int64_t across = (convolution_.positions + width_ - 1) / width_,
                  down = (convolution_.lines + height_ - 1) / height_,
                  groups = convolution_.args.shape.groups;
    const int64_t group_bytes = convolution_.channels * convolution_.reading.stage().plane();
    const int64_t work = std::min(width_, convolution_.positions) * height_ * lanes_;
    run_tasks(count * groups * down * across, work, lanes_ * width_, [&](int64_t index, float* room) {
      const int64_t col = index % across * width_, row = index / across % down * height_;
      const int64_t of_group = index / across / down, group = of_group % groups;
      compute(first + of_group / groups, group * convolution_.lines + row,
              std::min(height_, convolution_.lines - row), col, data + of_group * group_bytes,
              reinterpret_cast<uint32_t*>(room));
    });
  }

 private:
  // Positions [col, col + cols) as a panel.
  void pack(int64_t col, int64_t cols, const uint8_t* data, uint32_t* panel) const {
    const ByteLoops& loops = byte_loops();
    lines_.for_each_run(col, cols, [&](int64_t at, int64_t offset, int64_t run) {
      for (int64_t l = 0; l < lanes_; ++l) {
        const int64_t* row = rows_.data() + 4 * l;
        const uint8_t* from = data + offset;
        const uint8_t* const bytes[4] = {from + row[0], from + row[1], from + row[2], from + row[3]};
        loops.interleave(bytes, run, convolution_.flip, panel + l * kPanelRows + at);
      }
    });
  }

  void multiply(const void* rows, int64_t m, const uint32_t* panel, int64_t cols, int32_t* sums) const {
    const int64_t stride = padded_bytes(convolution_.depth) / 4;
    for (int64_t lane = 0; lane < lanes_; lane += kLanes) {
      lane_gemm().signed_bytes(static_cast<const uint32_t*>(rows) + lane, stride, m,
                               panel + lane * kPanelRows, cols, std::min(kLanes, lanes_ - lane), sums);
    }
  }

  // Filters [row, row + rows) of an image at the positions from `col` on.
  void compute(int64_t image, int64_t row, int64_t rows, int64_t col, const uint8_t* data,
               uint32_t* panels) const {
    const int64_t cols = std::min(width_, convolution_.positions - col);
    alignas(64) int32_t sums[kRowsAtOnce * kTile], x_sums[kTile];
    const auto for_each_panel = [&](const auto& body) {
      for (int64_t at = 0; at < cols; at += kPanelRows) {
        body(at, std::min(kPanelRows, cols - at), panels + at * lanes_);
      }
    };
    if (has_zeros_) std::fill_n(x_sums, kTile, 0);
    for_each_panel([&](int64_t at, int64_t count, uint32_t* panel) {
      pack(col + at, count, data, panel);
      if (has_zeros_) multiply(ones_.data(), 1, panel, count, x_sums + at);
    });
    for (int64_t done = 0; done < rows; done += kRowsAtOnce) {
      const int64_t some = std::min(kRowsAtOnce, rows - done);
      std::fill_n(sums, some * kTile, 0);
      for_each_panel([&](int64_t at, int64_t count, const uint32_t* panel) {
        multiply(convolution_.row(row + done), some, panel, count, sums + at);
      });
      for (int64_t i = 0; i < some; ++i) {
        store(image, row + done + i, col, cols, sums + i * kTile, x_sums);
      }
    }
  }

  void store(int64_t image, int64_t o, int64_t col, int64_t cols, int32_t* sums,
             const int32_t* x_sums) const {
    if (const uint32_t zero = convolution_.w_zero(o)) {
      for (int64_t j = 0; j < cols; ++j) {
        sums[j] = static_cast<int32_t>(sums[j] - zero * static_cast<uint32_t>(x_sums[j]));
      }
    }
    const int64_t at = (image * convolution_.args.shape.filters + o) * convolution_.positions + col;
    store_sums(convolution_.args.result, o, sums, cols, convolution_.shift[o], at);
  }

  const Convolution& convolution_;
  Lines lines_;
  int64_t lanes_, width_, height_;
  std::vector<int64_t> rows_;  // [4 · lanes]: where the bytes of position 0 are
  bool has_zeros_ = false;
  std::vector<int8_t> ones_;  // where there are zero points
};

void multiply(const Convolution& convolution) {
  const Product product(convolution);
  const ConvShape& shape = convolution.args.shape;
  const Stage& stage = convolution.reading.stage();
  if (stage.plain()) return product.run(0, shape.batch, static_cast<const uint8_t*>(convolution.args.x));
  const Bytes room(new uint8_t[staged_floats(stage.plane(), shape.channels)]);
  for (int64_t n = 0; n < shape.batch; ++n) {
    parallel_for(shape.channels, 1 + (1 << 16) / (stage.plane() + 1), [&](int64_t begin, int64_t end) {
      convolution.stage(n * shape.channels + begin, end - begin, room.get() + begin * stage.plane());
    });
    product.run(n, 1, room.get());
  }
}

// Rows of whole lines are taken as they lie in the stage, what is between them included, which is left out
// when they are stored.
class Loop {
 public:
  explicit Loop(const Convolution& convolution) : convolution_(convolution) {
    const Stage& stage = convolution.reading.stage();
    for (int64_t c = 0; c < convolution.channels; ++c) {
      for (const int64_t tap : convolution.reading.taps()) rows_.push_back(c * stage.plane() + tap);
    }
    bytes_ = staged_floats(stage.plane(), convolution.channels) + kByteOverrun;
  }

  int64_t room_floats() const { return convolution_.depth + (bytes_ + 3) / 4; }

  // A group of an image. The room is that of the weights of a filter and of the group's planes.
  void run(int64_t image, int64_t group, float* floats) const {
    const ConvShape& shape = convolution_.args.shape;
    auto* weights = reinterpret_cast<int32_t*>(floats);
    auto* room = reinterpret_cast<uint8_t*>(weights + convolution_.depth);
    convolution_.stage((image * shape.groups + group) * convolution_.channels, convolution_.channels, room);
    std::fill_n(room + bytes_ - kByteOverrun, kByteOverrun, 0);
    if (convolution_.flip) {
      for (int64_t i = 0; i < bytes_; ++i) room[i] ^= convolution_.flip;
    }
    for (int64_t o = group * convolution_.lines; o < (group + 1) * convolution_.lines; ++o) {
      for (int64_t k = 0; k < convolution_.depth; ++k) {
        weights[k] = static_cast<int32_t>(convolution_.row(o)[k] - convolution_.w_zero(o));
      }
      for (int64_t z = 0; z < shape.out[0]; ++z) {
        filter(image, o, z, weights, room + z * convolution_.reading.stage().pitch(0));
      }
    }
  }

 private:
  void filter(int64_t image, int64_t o, int64_t z, const int32_t* weights, const uint8_t* data) const {
    const auto [depths, heights, width] = convolution_.args.shape.out;
    const int64_t pitch = convolution_.reading.stage().pitch(1), at_once = std::max<int64_t>(1, kRun / pitch);
    alignas(64) int32_t sums[kRun + kByteOverrun];
    for (int64_t y = 0; y < heights; y += at_once) {
      const int64_t lines = std::min(at_once, heights - y);
      for (int64_t x = 0; x < width; x += kRun) {
        const int64_t across = std::min(kRun, width - x), count = (lines - 1) * pitch + across;
        byte_loops().correlate(weights, data + y * pitch + x, rows_.data(), convolution_.depth, count, sums);
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
  if (shape.batch * shape.filters * volume(shape.out) == 0) return;
  const Convolution convolution(args);
  if (!loops_over(shape.groups, convolution.lines)) return multiply(convolution);
  const Loop loop(convolution);
  const int64_t work = convolution.lines * convolution.positions * convolution.depth;
  run_tasks(shape.batch * shape.groups, work, loop.room_floats(),
            [&](int64_t index, float* room) { loop.run(index / shape.groups, index % shape.groups, room); });
}

}  // namespace spark::cpu
