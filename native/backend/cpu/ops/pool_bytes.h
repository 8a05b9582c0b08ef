// pool_bytes.h: the maximum of windows of bytes.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// pool() for max in u8 or i8, without indices.
void largest_bytes(const PoolArgs& args);

}  // namespace spark::cpu
