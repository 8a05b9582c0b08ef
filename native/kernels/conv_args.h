// conv_args.h: what a convolution on the device is given; read by conv.cu, filled by its launchers.
#pragma once

#include "backend/backend.h"

namespace spark {

// x and dy as in backend.h. `out` is y of conv_*, dx of conv_transposed_* and dweight of
// conv_weight_gradient; bias has an element for each channel of `out`.
struct ConvPassArgs {
  ConvShape shape;
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
