// warp_pixel.h: the pixels that warpFrames takes. One source for the CPU and the CUDA kernels.
#pragma once

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

// The nearest of `size` indices, in between the even one; 0 for NaN.
SPARK_HOST_DEVICE inline int64_t nearest_index(double at, double last) {
  // Rounds what is between 0 and 2^51 without a call, so that loops over pixels are vectorized.
  constexpr double kRound = 6755399441055744.0;
  const double from_zero = at > 0 ? at : 0;
  const double inside = from_zero < last ? from_zero : last;
  return static_cast<int64_t>(inside + kRound - kRound);
}

// Where the pixels of a channel of the result come from.
class PixelProjection {
 public:
  SPARK_HOST_DEVICE PixelProjection(const WarpFramesArgs& args, int64_t channel)
      : m_(args.matrix),
        plane_(args.planes[channel < 4 ? 0 : channel - 3]),
        step_(channel < 4 ? 2 : 1),
        row_(channel < 4 ? channel % 2 : 0),
        column_(channel < 4 ? channel / 2 : 0),
        shift_(channel < 4 ? 1 : 0.5),
        tilt_(channel < 4 ? 1 : 2) {}

  // The offset in a frame of the pixel at (r, q).
  SPARK_HOST_DEVICE int64_t offset(int64_t r, int64_t q) const {
    const double row = static_cast<double>(step_ * r + row_);
    const double column = static_cast<double>(step_ * q + column_);
    const double w = m_[6] * tilt_ * column + m_[7] * tilt_ * row + m_[8];
    const double x = (m_[0] * column + m_[1] * row + m_[2] * shift_) / w;
    const double y = (m_[3] * column + m_[4] * row + m_[5] * shift_) / w;
    return plane_.offset + nearest_index(y, static_cast<double>(plane_.height - 1)) * plane_.pitch +
           nearest_index(x, static_cast<double>(plane_.width - 1)) * plane_.step;
  }

 private:
  const double* m_;
  const PixelPlane& plane_;
  int64_t step_, row_, column_;
  double shift_, tilt_;
};

}  // namespace spark
