// backend.h: the table of operations that every backend fills. The contract of an operation, its shapes,
// dtypes and aliasing, stands beside its arguments in the header of its family, which operations.def names.
//
// Conventions. Matrices are row-major and contiguous. Letters: T tokens (rows of an activation), I in
// features, O out features, R rank; N batch, C channels. Pointers are addresses that the backend can read:
// host memory for the CPU, memory the device can reach for CUDA. Outputs may not alias inputs unless an entry
// says so. A nullable pointer is marked `null: …`. Sums are taken in f32; the order in which the terms of one
// output element are added depends on neither T, the row nor the number of threads, so a sample's result does
// not change with its neighbours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/conv_args.h"
#include "backend/dora_args.h"
#include "backend/integer_args.h"
#include "backend/layer_args.h"
#include "backend/linear_args.h"
#include "backend/network_args.h"
#include "backend/paged_args.h"
#include "backend/precision_args.h"
#include "backend/strided_args.h"
#include "backend/weight.h"

namespace spark {

// An entry is null where the backend lacks the operation: ERR_UNSUPPORTED, never a silent copy to another
// device. Entries may throw spark::Error. On CUDA they enqueue on the current stream and return.
struct Backend {
  const char* name;
#define SPARK_OPERATION(entry, Args, name) void (*entry)(const Args&) = nullptr;
#include "backend/operations.def"
};

}  // namespace spark
