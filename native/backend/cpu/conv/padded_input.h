// padded_input.h: the layout of the planes of an image that a convolution reads. Zeros around the image are
// written down, and positions that a stride keeps apart are gathered by their remainder. Neighbouring
// positions then read neighbouring elements, and each tap is one offset from there, inside of the plane.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace spark::cpu {

// The elements [begin, end) of a remainder lie inside of the image, the first of them at `at`.
struct ImageRange {
  int64_t begin, end, at;

  int64_t count() const { return end - begin; }
};

struct PaddedAxis {
  int64_t size;                     // of the image
  int64_t stride, first;            // element i of remainder r is image[first + r + i · stride]
  std::vector<int64_t> remainders;  // those that a tap reads, rising
  int64_t length;                   // elements of a remainder

  std::vector<ImageRange> inside{};  // for each remainder; PaddedInput fills it in

  int64_t elements() const { return static_cast<int64_t>(remainders.size()) * length; }
};

struct PaddedTap {
  int64_t remainder, shift;  // position q reads element q + shift of the remainder of this index
};

class PaddedInput {
 public:
  explicit PaddedInput(PaddedAxis (&axes)[3]);

  const PaddedAxis& axis(int i) const { return axes_[i]; }
  int64_t plane() const { return plane_; }
  int64_t pitch(int axis) const { return pitch_[axis]; }
  // Where the elements of position 0 lie in a plane, for each combination of taps along the axes.
  std::vector<int64_t> offsets(const std::array<std::vector<PaddedTap>, 3>& taps) const;
  // Whether a plane is the image as it is.
  bool plain() const;
  // `padding` goes where the image is not.
  void fill(const float* image, float* plane, float padding = 0) const;

 private:
  void fill_block(const float* image, const std::array<size_t, 3>& of, float* to, float padding) const;

  PaddedAxis axes_[3];
  int64_t plane_;
  int64_t pitch_[3];  // between elements of a remainder along an axis
  int64_t block_[3];  // between remainders of an axis
};

// Positions that are computed in one go: they lie behind each other in the padded input, from element `from`
// of a plane on, with what is between the lines among them.
struct PositionRun {
  int64_t from, count;
  int64_t position, lines, width;  // the first position; lines of so many positions
};
constexpr int64_t kRunCount = 2048;

// Calls run(PositionRun) for all positions of a plane.
template <typename Run>
void for_each_run(const PaddedInput& input, const int64_t (&size)[3], const Run& run) {
  const auto& [depth, height, width] = size;
  const int64_t pitch = input.pitch(1), at_once = kRunCount > pitch ? kRunCount / pitch : 1;
  for (int64_t z = 0; z < depth; ++z) {
    for (int64_t y = 0; y < height; y += at_once) {
      const int64_t lines = at_once < height - y ? at_once : height - y;
      for (int64_t x = 0; x < width; x += kRunCount) {
        const int64_t some = kRunCount < width - x ? kRunCount : width - x;
        run(PositionRun{z * input.pitch(0) + y * pitch + x, (lines - 1) * pitch + some,
                        (z * height + y) * width + x, lines, some});
      }
    }
  }
}

// The lines of a run, `pitch` elements apart, go to where they belong in a plane of positions.
void copy_run(const PositionRun& run, int64_t pitch, const float* from, float* plane);

constexpr int64_t kPaddedSlack = 16;  // floats behind a padded input that a vector may read

// count · size, refused where no machine has so much memory for the images that a task pads.
constexpr int64_t kMaxPaddedFloats = int64_t{1} << 31;
int64_t padded_floats(int64_t count, int64_t size);

inline int64_t numel(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

}  // namespace spark::cpu
