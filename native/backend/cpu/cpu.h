// cpu.h: the CPU backend. Plain loops that define what is correct; `parallel_for` spreads rows over threads.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

const Backend& backend();

#define SPARK_OPERATION(entry, Args, name) void entry(const Args&);
#include "backend/operations.def"

}  // namespace spark::cpu
