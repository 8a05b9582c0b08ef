// softmax_cross_entropy.cc: mean cross-entropy of softmax and its gradient.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/inside.h"
#include "backend/labels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// −log softmax(logits)[label]; `dlogits`, when wanted, = (softmax − onehot) · scale.
float row_loss(const float* logits, int64_t classes, int64_t label, float scale, float* dlogits) {
  const float largest = *std::max_element(logits, logits + classes);
  float sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - largest);
  if (dlogits) {
    const float factor = scale / sum;
    for (int64_t c = 0; c < classes; ++c) dlogits[c] = std::exp(logits[c] - largest) * factor;
    dlogits[label] -= scale;
  }
  return std::log(sum) - (logits[label] - largest);
}

}  // namespace

void softmax_cross_entropy(const SoftmaxCrossEntropyArgs& args) {
  const int64_t tokens = args.tokens, classes = args.classes;
  expect_labels(args.labels, tokens, classes);
  std::vector<float> losses(tokens);
  parallel_for(tokens, grain_for(classes, 1 << 12), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* dlogits = args.dlogits ? args.dlogits + t * classes : nullptr;
      const int64_t label = inside(args.labels[t], classes);
      losses[t] = row_loss(args.logits + t * classes, classes, label, 1.0f / tokens, dlogits);
    }
  });
  double sum = 0;
  for (const float loss : losses) sum += loss;
  args.loss[0] = static_cast<float>(sum / tokens);
}

}  // namespace spark::cpu
