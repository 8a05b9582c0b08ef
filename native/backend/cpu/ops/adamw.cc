// adamw.cc: the AdamW update.
#include <algorithm>
#include <cmath>
#include <span>

#include "backend/adamw_step.h"
#include "backend/cpu/cpu.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements a thread takes at a time

void update(const AdamwTensor& tensor, const AdamwStep& step, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float grad = tensor.grad[i];
    tensor.m[i] += (grad - tensor.m[i]) * step.rest1;
    tensor.v[i] = tensor.v[i] * step.beta2 + grad * grad * step.rest2;
    const float scale = std::sqrt(tensor.v[i]) / step.correction + step.eps;
    tensor.param[i] = tensor.param[i] * step.decay - step.rate * (tensor.m[i] / scale);
  }
}

}  // namespace

void adamw(const AdamwArgs& args) {
  const AdamwStep step(args);
  const std::span tensors(args.tensors, args.tensor_count);
  int64_t total = 0;
  for (const AdamwTensor& tensor : tensors) total += tensor.count;
  // The elements are numbered through all tensors.
  parallel_for(total, kGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const AdamwTensor& tensor : tensors) {
      update(tensor, step, std::max<int64_t>(begin - first, 0), std::min(end - first, tensor.count));
      first += tensor.count;
    }
  });
}

}  // namespace spark::cpu
