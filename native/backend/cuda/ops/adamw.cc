// adamw.cc: launcher of the AdamW update.
#include "backend/adamw_step.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {

void adamw(const AdamwArgs& args) {
  constexpr int kThreads = 256;
  const Scratch step(sizeof(AdamwStep));
  launch("adamw", "adamw_step", Grid{1}, Threads{1}, 0, args, step.as<AdamwStep>());
  launch("adamw", "adamw_f32", Grid{ceil_div(args.count, kThreads)}, Threads{kThreads}, 0, args.count,
         step.as<const AdamwStep>(), args.grad, args.param, args.m, args.v);
}

}  // namespace spark::cuda
