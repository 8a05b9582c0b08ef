// conv_stage.h: how the planes of an image lie while a convolution reads them. Zeros around the image are
// written down, and positions that a stride keeps apart are gathered by their remainder. Neighbouring
// positions then read neighbouring elements, and each tap is one offset from there, inside of the plane.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace spark::cpu {

struct StageAxis {
  int64_t size;                     // of the image
  int64_t stride, first;            // element i of remainder r is image[first + r + i · stride]
  std::vector<int64_t> remainders;  // those that a tap reads, rising
  int64_t length;                   // elements of a remainder

  int64_t elements() const { return static_cast<int64_t>(remainders.size()) * length; }
};

struct StageTap {
  int64_t remainder, shift;  // position q reads element q + shift of the remainder of this index
};

class Stage {
 public:
  explicit Stage(StageAxis (&axes)[3]);

  const StageAxis& axis(int i) const { return axes_[i]; }
  int64_t plane() const { return plane_; }
  int64_t pitch(int axis) const { return pitch_[axis]; }
  // Where the elements of position 0 lie in a plane, for each combination of taps along the axes.
  std::vector<int64_t> offsets(const std::array<std::vector<StageTap>, 3>& taps) const;
  // Whether a plane is the image as it is.
  bool plain() const;
  void fill(const float* image, float* plane) const;

 private:
  StageAxis axes_[3];
  int64_t plane_;
  int64_t pitch_[3];  // between elements of a remainder along an axis
  int64_t block_[3];  // between remainders of an axis
};

// count · size, refused where no machine has so much memory for the images that a task stages.
constexpr int64_t kMostStaged = int64_t{1} << 31;
int64_t staged_floats(int64_t count, int64_t size);

inline int64_t volume(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

}  // namespace spark::cpu
