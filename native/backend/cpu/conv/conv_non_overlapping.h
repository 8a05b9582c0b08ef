// conv_non_overlapping.h: transposed convolutions whose kernel is as large as their stride.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// Whether each position of the image meets one tap of one position of the output, for a single group.
bool is_non_overlapping(const ConvShape& shape);

// dx = Σ dy · W + bias, for every channel, of such a shape, by one product. weight: [O, C · taps]
void transposed_non_overlapping(const float* weight, const ConvShape& shape, const float* dy,
                                const float* bias, float* dx);

}  // namespace spark::cpu
