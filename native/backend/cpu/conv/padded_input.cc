// padded_input.cc: padded inputs of convolutions.
#include "backend/cpu/conv/padded_input.h"

#include <algorithm>

#include "backend/cpu/simd/cpu_kernels.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

ImageRange inside_of(const PaddedAxis& axis, int64_t remainder) {
  const int64_t start = axis.first + remainder;
  const int64_t begin = std::clamp<int64_t>(ceil_div(-start, axis.stride), 0, axis.length);
  const int64_t end = std::clamp<int64_t>(ceil_div(axis.size - start, axis.stride), begin, axis.length);
  return {begin, end, start + begin * axis.stride};
}

}  // namespace

int64_t padded_floats(int64_t count, int64_t size) {
  int64_t floats;
  if (__builtin_mul_overflow(count, size, &floats) || floats > kMaxPaddedFloats) {
    throw Error("ERR_SHAPE",
                message("a convolution reads more than ", kMaxPaddedFloats,
                        " elements in and around an image: its pads, dilations or sizes are too large"));
  }
  return floats;
}

// A plane is ordered by remainders first: [remainders of z][of y][of x][z][y][x].
PaddedInput::PaddedInput(PaddedAxis (&axes)[3]) : axes_{axes[0], axes[1], axes[2]} {
  int64_t size = 1;
  for (int axis = 2; axis >= 0; --axis) {
    pitch_[axis] = size;
    size = padded_floats(size, axes_[axis].length);
  }
  for (int axis = 2; axis >= 0; --axis) {
    block_[axis] = size;
    size = padded_floats(size, static_cast<int64_t>(axes_[axis].remainders.size()));
  }
  plane_ = size;
  for (PaddedAxis& axis : axes_) {
    for (const int64_t remainder : axis.remainders) axis.inside.push_back(inside_of(axis, remainder));
  }
}

std::vector<int64_t> PaddedInput::offsets(const std::array<std::vector<PaddedTap>, 3>& taps) const {
  std::vector<int64_t> result{0};
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<int64_t> longer;
    for (const int64_t offset : result) {
      for (const PaddedTap& tap : taps[axis]) {
        longer.push_back(offset + tap.remainder * block_[axis] + tap.shift * pitch_[axis]);
      }
    }
    result = std::move(longer);
  }
  return result;
}

bool PaddedInput::plain() const {
  return std::all_of(axes_, axes_ + 3, [](const PaddedAxis& axis) {
    return axis.stride == 1 && axis.first == 0 && axis.length == axis.size;
  });
}

void PaddedInput::fill(const float* image, float* plane, float padding) const {
  const auto& [z, y, x] = axes_;
  const int64_t layer = y.length * x.length;
  for (size_t of_z = 0; of_z < z.remainders.size(); ++of_z) {
    for (size_t of_y = 0; of_y < y.remainders.size(); ++of_y) {
      for (size_t of_x = 0; of_x < x.remainders.size(); ++of_x, plane += z.length * layer) {
        fill_block(image, {of_z, of_y, of_x}, plane, padding);
      }
    }
  }
}

// The elements of three remainders.
void PaddedInput::fill_block(const float* image, const std::array<size_t, 3>& of, float* to,
                             float padding) const {
  const auto& [z, y, x] = axes_;
  const ImageRange &in_z = z.inside[of[0]], &in_y = y.inside[of[1]], &in_x = x.inside[of[2]];
  const int64_t layer = y.length * x.length, pitch = y.stride * x.size;
  std::fill_n(to, in_z.begin * layer, padding);
  for (int64_t i = in_z.begin; i < in_z.end; ++i) {
    float* lines = to + i * layer;
    const int64_t depth = in_z.at + (i - in_z.begin) * z.stride;
    std::fill_n(lines, in_y.begin * x.length, padding);
    kernels().conv.pad_lines(image + (depth * y.size + in_y.at) * x.size + in_x.at, pitch, x.stride,
                             in_y.count(), in_x.begin, in_x.end, x.length, padding,
                             lines + in_y.begin * x.length);
    std::fill_n(lines + in_y.end * x.length, (y.length - in_y.end) * x.length, padding);
  }
  std::fill_n(to + in_z.end * layer, (z.length - in_z.end) * layer, padding);
}

void copy_run(const PositionRun& run, int64_t pitch, const float* from, float* plane) {
  kernels().conv.pad_lines(from, pitch, 1, run.lines, 0, run.width, run.width, 0, plane + run.position);
}

}  // namespace spark::cpu
