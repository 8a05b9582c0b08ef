// pack_blocks.h: a weight in a block format, into panels.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

void pack_blocks(const PackWeightArgs& args);

}  // namespace spark::cpu
