// padded_bytes.cc: padded inputs of int8 convolutions.
#include "backend/cpu/conv/padded_bytes.h"

#include <algorithm>

namespace spark::cpu {
namespace {

// to[i] = from[i · stride]
void copy(const uint8_t* from, int64_t stride, int64_t count, uint8_t* to) {
  if (stride == 1) {
    std::copy_n(from, count, to);
  } else if (stride == 2) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }
}

}  // namespace

// Lines of bytes are short: one fill of the plane costs less than two of each line.
void pad_bytes(const PaddedInput& input, const uint8_t* image, uint8_t outside, uint8_t* plane) {
  std::fill_n(plane, input.plane(), outside);
  const PaddedAxis &z = input.axis(0), &y = input.axis(1), &x = input.axis(2);
  for (const ImageRange& in_z : z.inside) {
    for (const ImageRange& in_y : y.inside) {
      for (const ImageRange& in_x : x.inside) {
        for (int64_t i = in_z.begin; i < in_z.end; ++i) {
          const uint8_t* layer = image + (in_z.at + (i - in_z.begin) * z.stride) * y.size * x.size;
          for (int64_t j = in_y.begin; j < in_y.end; ++j) {
            copy(layer + (in_y.at + (j - in_y.begin) * y.stride) * x.size + in_x.at, x.stride, in_x.count(),
                 plane + (i * y.length + j) * x.length + in_x.begin);
          }
        }
        plane += z.length * y.length * x.length;
      }
    }
  }
}

}  // namespace spark::cpu
