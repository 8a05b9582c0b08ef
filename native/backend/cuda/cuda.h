// cuda.h: the CUDA backend. An entry enqueues on the stream of the current device (device.h) and returns;
// pointers in its arguments are addresses that device can reach. Kernels are started with launch.h.
#pragma once

#include "backend/backend.h"

namespace spark::cuda {

const Backend& backend();

#define SPARK_OPERATION(entry, Args, name) void entry(const Args&);
#define SPARK_CPU_OPERATION(entry, Args, name)
#include "backend/operations.def"

}  // namespace spark::cuda
