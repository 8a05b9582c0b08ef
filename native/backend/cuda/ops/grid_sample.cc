// grid_sample.cc: launcher of GridSample.
#include "backend/cuda/cuda.h"
#include "backend/cuda/ops/strided.h"

namespace spark::cuda {

void grid_sample(const GridSampleArgs& args) {
  launch("grid_sample", "grid_sample_f32", threads_for(args.batch * args.channels * args.points),
         Threads{kViewThreads}, 0, args);
}

}  // namespace spark::cuda
