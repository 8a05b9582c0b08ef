// rotary.cc: launcher of rotary embeddings.
#include "backend/cuda/cuda.h"
#include "backend/cuda/ops/strided.h"

namespace spark::cuda {

void rotary(const RotaryArgs& args) {
  launch("rotary", "rotary_f32", threads_for(args.batch * args.tokens * args.heads * args.depth),
         Threads{kViewThreads}, 0, args);
}

}  // namespace spark::cuda
