// dora_mixed.cc: launchers for a batch whose rows use different DoRA adapters.
#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/product.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;

}  // namespace

void dora_mixed(const DoraMixedArgs& args) {
  int64_t stride = 0;
  for (int64_t i = 0; i < args.count; ++i) stride = std::max(stride, args.adapters[i].low_rank.rank);
  launch_rows(with_rows(args.tokens, rows_of(args.x, args.weight.cols), args.weight, args.y));
  const Scratch xa(args.tokens * stride * sizeof(float));
  launch("dora_mixed", "dora_mixed_down_f32", Grid{args.tokens * stride}, Threads{kThreads}, 0, args, stride,
         xa.as<float>());
  launch("dora_mixed", "dora_mixed_f32", Grid{ceil_div(args.tokens * args.weight.rows, kThreads)},
         Threads{kThreads}, 0, args, stride, xa.as<const float>());
}

}  // namespace spark::cuda
