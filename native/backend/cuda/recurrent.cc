#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "core/error.h"

namespace spark::cuda {

void recurrent(const RecurrentArgs& args) {
  constexpr int kThreads = 256;
  if (args.packed) {
    throw Error("ERR_UNSUPPORTED", "the cuda backend has no recurrent layer with a packed weight");
  }
  launch("recurrent", "recurrent_f32", Grid{args.directions * args.batch}, Threads{kThreads}, 0, args);
}

}  // namespace spark::cuda
