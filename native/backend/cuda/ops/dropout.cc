// dropout.cc: launcher of dropout masks.
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {

void dropout_mask(const DropoutMaskArgs& args) {
  constexpr int kThreads = 256;
  launch("dropout", "dropout_mask_f32", Grid{ceil_div(ceil_div(args.count, 4), kThreads)}, Threads{kThreads},
         0, args);
}

}  // namespace spark::cuda
