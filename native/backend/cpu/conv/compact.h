// compact.h: pointwise convolutions of compact images, whose channels come last.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// With x or y compact, or both: the bits of the convolution of planes.
void pointwise_compact(const ConvArgs& args);

}  // namespace spark::cpu
