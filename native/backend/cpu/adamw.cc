#include <cmath>

#include "backend/cpu/cpu.h"
#include "core/thread_pool.h"

namespace spark::cpu {

void adamw(const AdamwArgs& args) {
  const double step = static_cast<double>(args.step);
  const float decay = static_cast<float>(1 - args.lr * args.weight_decay);
  const float beta2 = static_cast<float>(args.beta2), eps = static_cast<float>(args.eps);
  const float rest1 = static_cast<float>(1 - args.beta1), rest2 = static_cast<float>(1 - args.beta2);
  const float rate = static_cast<float>(args.lr / (1 - std::pow(args.beta1, step)));
  const float correction = static_cast<float>(std::sqrt(1 - std::pow(args.beta2, step)));
  parallel_for(args.count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float grad = args.grad[i];
      args.m[i] += (grad - args.m[i]) * rest1;
      args.v[i] = args.v[i] * beta2 + grad * grad * rest2;
      const float scale = std::sqrt(args.v[i]) / correction + eps;
      args.param[i] = args.param[i] * decay - rate * (args.m[i] / scale);
    }
  });
}

}  // namespace spark::cpu
