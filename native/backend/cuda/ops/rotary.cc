// rotary.cc: launcher of rotary embeddings.
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {

void rotary(const RotaryArgs& args) {
  constexpr int kThreads = 256, kHeads = kThreads / 32;  // a warp for each head
  launch("rotary", "rotary_f32", Grid{ceil_div(args.batch * args.tokens * args.heads, kHeads)},
         Threads{kThreads}, 0, args);
}

}  // namespace spark::cuda
