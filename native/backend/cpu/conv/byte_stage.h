// byte_stage.h: a stage (conv_stage.h) of planes of bytes.
#pragma once

#include "backend/cpu/conv/conv_stage.h"

namespace spark::cpu {

constexpr int64_t kByteOverrun = 16;  // bytes behind a stage that loops may read

// Writes down a plane of the image; `outside` is what lies around it.
void stage_bytes(const Stage& stage, const uint8_t* image, uint8_t outside, uint8_t* plane);

}  // namespace spark::cpu
