// pool_compact.h: poolings of compact images, whose channels come last.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// pool() with x or y compact, or both: the bits of planes.
void pool_compact(const PoolArgs& args);

}  // namespace spark::cpu
