// pool_bytes.h: int8 max pooling.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

// pool() for max in u8 or i8, without indices.
void largest_bytes(const PoolArgs& args);

}  // namespace spark::cpu
