// conv_args.h: what a convolution on the device is given; read by conv.cu and conv_tensor.cu, filled by their
// launchers.
#pragma once

#include "backend/backend.h"
#include "kernels/fast_divisor.h"

namespace spark {

// x and dy as in backend.h. `out` is y of conv_*, dx of conv_transposed_* and dweight of
// conv_weight_gradient; bias has an element for each channel of `out`. No extent of an axis, no image and no
// count of positions or of channels and taps is 2^30 or more.
struct ConvPassArgs {
  ConvShape shape;
  FastAxes kernel, image, out_axes, stride;  // sizes of the shape
  Weight w;
  const float* x;
  const float* dy;
  const float* bias;
  const float* residual;
  bool residual_first;
  Activation activation;
  float* out;
};

}  // namespace spark
