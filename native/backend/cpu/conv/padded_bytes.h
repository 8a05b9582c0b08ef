// padded_bytes.h: padded inputs (padded_input.h) of int8 elements.
#pragma once

#include "backend/cpu/conv/padded_input.h"

namespace spark::cpu {

constexpr int64_t kByteOverrun = 16;  // bytes behind a padded input that loops may read

// Writes down a plane of the image; `outside` is what lies around it.
void pad_bytes(const PaddedInput& input, const uint8_t* image, uint8_t outside, uint8_t* plane);

}  // namespace spark::cpu
