// strided.h: shared helpers of the launchers of operations on strided tensors.
#pragma once

#include <algorithm>
#include <string>

#include "backend/cuda/runtime/launch.h"
#include "backend/numbers.h"
#include "kernels/ops/blocks.h"

namespace spark::cuda {

constexpr int kViewThreads = view_block::kThreads;

// A block for every kViewThreads of `count` threads.
inline Grid threads_for(int64_t count) { return Grid{ceil_div(count, kViewThreads)}; }

// Those of a kernel that goes on with other elements until `count` are done.
inline Grid threads_sharing(int64_t count) {
  using namespace view_block;
  const int64_t each = ceil_div(count, kThreads), shared = ceil_div(count, kThreads * kElements);
  return Grid{std::min(each, std::max(shared, int64_t{kFull}))};
}

// The kernel for the numbers that elements of `dtype` are computed with. Throws ERR_DTYPE for nvfp4.
std::string kernel_of_number(const char* name, DType dtype);

// The kernel for elements of the size of those of `dtype`.
std::string kernel_of_size(const char* name, DType dtype);

}  // namespace spark::cuda
