// amax.cc: launcher of the maximum magnitude.
#include <algorithm>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "kernels/quantize/blocks.h"

namespace spark::cuda {
namespace {

using amax_block::kThreads;
constexpr int64_t kMaxBlocks =
    1024;  // several per multiprocessor on every GPU, few enough for one last block

}  // namespace

void amax(const AmaxArgs& args) {
  const int64_t blocks = std::clamp<int64_t>(ceil_div(args.count, kThreads * kRun), 1, kMaxBlocks);
  const Scratch partial(blocks * sizeof(uint32_t));
  uint32_t* maxima = partial.as<uint32_t>();
  launch("amax", std::string("amax_") + dtype_name(args.dtype), Grid{blocks}, Threads{kThreads}, 0, args.src,
         args.count, maxima);
  launch("amax", "amax_finish", Grid{1}, Threads{kThreads}, 0, maxima, static_cast<int>(blocks), args.out);
}

}  // namespace spark::cuda
