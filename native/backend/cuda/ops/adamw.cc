// adamw.cc: launcher of the AdamW update.
#include "backend/adamw_step.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "kernels/ops/adamw_blocks.h"

namespace spark::cuda {

void adamw(const AdamwArgs& args) {
  const AdamwBlocks blocks(args);
  const Scratch step(sizeof(AdamwStep));
  launch("adamw", "adamw_step", Grid{1}, Threads{1}, 0, args, step.as<AdamwStep>());
  launch("adamw", "adamw_f32", Grid{blocks.first[args.tensor_count]}, Threads{AdamwBlocks::kThreads}, 0, args,
         blocks, step.as<const AdamwStep>());
}

}  // namespace spark::cuda
