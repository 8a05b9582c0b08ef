// inside.h: indices that were checked before the work began.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spark::cpu {

// The index, whatever a thread that shares its memory has written there since the check: what it addresses is
// one of `limit` places, which are at least one.
inline int64_t inside(int64_t index, int64_t limit) { return std::clamp<int64_t>(index, 0, limit - 1); }

}  // namespace spark::cpu
