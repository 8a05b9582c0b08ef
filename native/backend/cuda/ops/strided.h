// strided.h: shared helpers of the launchers of operations on strided tensors.
#pragma once

#include <string>

#include "backend/cuda/runtime/launch.h"
#include "backend/numbers.h"

namespace spark::cuda {

constexpr int kViewThreads = 256;

// A block for every kViewThreads of `count` threads.
inline Grid threads_for(int64_t count) { return Grid{ceil_div(count, kViewThreads)}; }

// The kernel for the numbers that elements of `dtype` are computed with. Throws ERR_DTYPE for nvfp4.
std::string kernel_of_number(const char* name, DType dtype);

// The kernel for elements of the size of those of `dtype`.
std::string kernel_of_size(const char* name, DType dtype);

}  // namespace spark::cuda
