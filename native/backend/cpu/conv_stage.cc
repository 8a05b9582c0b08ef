#include "backend/cpu/conv_stage.h"

#include <algorithm>

#include "backend/cpu/gemm.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

// The elements [begin, end) of a remainder lie inside of the image, others are zeros.
struct Inside {
  int64_t begin, end;

  Inside(const StageAxis& axis, int64_t remainder) {
    const int64_t start = axis.first + remainder;
    begin = std::clamp<int64_t>(ceil_div(-start, axis.stride), 0, axis.length);
    end = std::clamp<int64_t>(ceil_div(axis.size - start, axis.stride), begin, axis.length);
  }

  bool has(int64_t i) const { return i >= begin && i < end; }
};

// The elements of a remainder from a line of the image.
void fill_line(const StageAxis& axis, int64_t remainder, const Inside& inside, const float* line, float* to) {
  const auto& [begin, end] = inside;
  std::fill(to, to + begin, 0.0f);
  std::fill(to + end, to + axis.length, 0.0f);
  const float* from = line + axis.first + remainder;
  if (axis.stride == 1) {
    std::copy(from + begin, from + end, to + begin);
  } else if (axis.stride == 2) {
    gemm().halve(from + 2 * begin, end - begin, to + begin);
  } else {
    for (int64_t i = begin; i < end; ++i) to[i] = from[i * axis.stride];
  }
}

}  // namespace

int64_t staged_floats(int64_t count, int64_t size) {
  int64_t floats;
  if (__builtin_mul_overflow(count, size, &floats) || floats > kMostStaged) {
    throw Error("ERR_SHAPE",
                message("a convolution reads more than ", kMostStaged,
                        " elements in and around an image: its pads, dilations or sizes are too large"));
  }
  return floats;
}

// A plane is ordered by remainders first: [remainders of z][of y][of x][z][y][x].
Stage::Stage(StageAxis (&axes)[3]) : axes_{axes[0], axes[1], axes[2]} {
  int64_t size = 1;
  for (int axis = 2; axis >= 0; --axis) {
    pitch_[axis] = size;
    size = staged_floats(size, axes_[axis].length);
  }
  for (int axis = 2; axis >= 0; --axis) {
    block_[axis] = size;
    size = staged_floats(size, static_cast<int64_t>(axes_[axis].remainders.size()));
  }
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
  for (const int64_t of_z : z.remainders) {
    for (const int64_t of_y : y.remainders) {
      for (const int64_t of_x : x.remainders) {
        const Inside inside_z(z, of_z), inside_y(y, of_y), inside_x(x, of_x);
        for (int64_t i = 0; i < z.length; ++i) {
          const int64_t layer = (z.first + of_z + i * z.stride) * y.size;
          for (int64_t j = 0; j < y.length; ++j, plane += x.length) {
            if (inside_z.has(i) && inside_y.has(j)) {
              fill_line(x, of_x, inside_x, image + (layer + y.first + of_y + j * y.stride) * x.size, plane);
            } else {
              std::fill_n(plane, x.length, 0.0f);
            }
          }
        }
      }
    }
  }
}

}  // namespace spark::cpu
