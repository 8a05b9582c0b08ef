// adamw.cc: the AdamW update.
#include <cmath>

#include "backend/adamw_step.h"
#include "backend/cpu/cpu.h"
#include "core/thread_pool.h"

namespace spark::cpu {

constexpr int64_t kGrain = 1 << 14;  // elements a thread takes at a time

void adamw(const AdamwArgs& args) {
  const AdamwStep step(args);
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float grad = args.grad[i];
      args.m[i] += (grad - args.m[i]) * step.rest1;
      args.v[i] = args.v[i] * step.beta2 + grad * grad * step.rest2;
      const float scale = std::sqrt(args.v[i]) / step.correction + step.eps;
      args.param[i] = args.param[i] * step.decay - step.rate * (args.m[i] / scale);
    }
  });
}

}  // namespace spark::cpu
