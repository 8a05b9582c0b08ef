#include "backend/adamw_step.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"

namespace spark::cuda {

void adamw(const AdamwArgs& args) {
  constexpr int kThreads = 256;
  launch("adamw", "adamw_f32", Grid{ceil_div(args.count, kThreads)}, Threads{kThreads}, 0, args.count,
         AdamwStep(args), args.grad, args.param, args.m, args.v);
}

}  // namespace spark::cuda
