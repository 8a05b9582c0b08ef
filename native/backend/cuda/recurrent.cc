#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"

namespace spark::cuda {

void recurrent(const RecurrentArgs& args) {
  constexpr int kThreads = 256;
  launch("recurrent", "recurrent_f32", Grid{args.directions * args.batch}, Threads{kThreads}, 0, args);
}

}  // namespace spark::cuda
