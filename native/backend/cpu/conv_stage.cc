#include "backend/cpu/conv_stage.h"

#include <algorithm>

namespace spark::cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

// The elements of a remainder from a line of the image.
void fill_line(const StageAxis& axis, int64_t remainder, const float* line, float* to) {
  const int64_t start = axis.first + remainder;
  const int64_t begin = std::clamp<int64_t>(ceil_div(-start, axis.stride), 0, axis.length);
  const int64_t end = std::clamp<int64_t>(ceil_div(axis.size - start, axis.stride), begin, axis.length);
  std::fill(to, to + begin, 0.0f);
  std::fill(to + end, to + axis.length, 0.0f);
  const float* from = line + start;
  if (axis.stride == 1) {
    std::copy(from + begin, from + end, to + begin);
  } else if (axis.stride == 2) {
    for (int64_t i = begin; i < end; ++i) to[i] = from[2 * i];
  } else {
    for (int64_t i = begin; i < end; ++i) to[i] = from[i * axis.stride];
  }
}

}  // namespace

// A plane is ordered by remainders first: [remainders of z][of y][of x][z][y][x].
Stage::Stage(StageAxis (&axes)[3]) : axes_{axes[0], axes[1], axes[2]} {
  int64_t size = 1;
  for (int axis = 2; axis >= 0; size *= axes_[axis--].length) pitch_[axis] = size;
  for (int axis = 2; axis >= 0; size *= axes_[axis--].remainders.size()) block_[axis] = size;
  plane_ = size;
}

std::vector<int64_t> Stage::offsets(const std::array<std::vector<StageTap>, 3>& taps) const {
  std::vector<int64_t> result{0};
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<int64_t> longer;
    for (const int64_t offset : result) {
      for (const StageTap& tap : taps[axis]) {
        longer.push_back(offset + tap.remainder * block_[axis] + tap.shift * pitch_[axis]);
      }
    }
    result = std::move(longer);
  }
  return result;
}

bool Stage::plain() const {
  return std::all_of(axes_, axes_ + 3, [](const StageAxis& axis) {
    return axis.stride == 1 && axis.first == 0 && axis.length == axis.size;
  });
}

void Stage::fill(const float* image, float* plane) const {
  const auto& [z, y, x] = axes_;
  const auto inside = [](const StageAxis& axis, int64_t at) { return at >= 0 && at < axis.size; };
  for (const int64_t of_z : z.remainders) {
    for (const int64_t of_y : y.remainders) {
      for (const int64_t of_x : x.remainders) {
        for (int64_t i = 0; i < z.length * y.length; ++i, plane += x.length) {
          const int64_t at_z = z.first + of_z + i / y.length * z.stride;
          const int64_t at_y = y.first + of_y + i % y.length * y.stride;
          if (inside(z, at_z) && inside(y, at_y)) {
            fill_line(x, of_x, image + (at_z * y.size + at_y) * x.size, plane);
          } else {
            std::fill_n(plane, x.length, 0.0f);
          }
        }
      }
    }
  }
}

}  // namespace spark::cpu
