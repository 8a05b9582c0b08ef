// recurrent.cc: launchers of RNN, GRU and LSTM layers.
#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"

namespace spark::cuda {

void recurrent(const RecurrentArgs& args) {
  constexpr int kThreads = 256, kProductsOfStep = 16;  // that take as long as a step of kSerialSteps
  if (args.packed) {
    throw Error("ERR_UNSUPPORTED", "the cuda backend has no recurrent layer with a packed weight");
  }
  // Columns of the weight for each thread, products for each column; blocks may take turns on a processor.
  const int64_t blocks = args.directions * args.batch;
  const int64_t turns = ceil_div(blocks, std::max(Device::current().attributes.multiprocessors, 1));
  const int64_t products = ceil_div(gate_count(args.cell) * args.hidden, kThreads) * args.hidden;
  launch_in_pieces(args.steps, ceil_div(products * turns, kProductsOfStep), [&](int64_t begin, int64_t end) {
    launch("recurrent", "recurrent_f32", Grid{blocks}, Threads{kThreads}, 0, args, begin, end);
  });
}

}  // namespace spark::cuda
