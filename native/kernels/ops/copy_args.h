// copy_args.h: the parameters of transposed copies on the device; read by move.cu, filled by its launcher.
#pragma once

#include "backend/strided_args.h"

namespace spark {

// An axis of a copy and the strides of both sides along it.
struct CopyAxis {
  int64_t size, src_step, dst_step;
};

// A copy whose src is fastest along `rows` and whose dst is fastest along `cols`; `batch` has the other axes.
struct CopyTransposedArgs {
  CopyStridedArgs batch;
  CopyAxis rows, cols;
};

}  // namespace spark
