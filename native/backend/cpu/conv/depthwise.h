// depthwise.h: convolutions whose filters read one channel each, in place, without padding.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// Whether depthwise_conv() computes a convolution. The results are those of convolve() (conv_passes.h).
bool is_depthwise(const ConvArgs& args);
void depthwise_conv(const ConvArgs& args);

}  // namespace spark::cpu
