// grain.h: numbers of indices that a thread takes at a time (the grain of parallel_for).
#pragma once

#include <cstdint>

namespace spark::cpu {

// The grain of a loop whose indices cost `cost` operations each, for about `work` operations at a time: as
// many as outweigh waking a thread.
inline int64_t grain_for(int64_t cost, int64_t work) { return 1 + work / (cost + 1); }

}  // namespace spark::cpu
