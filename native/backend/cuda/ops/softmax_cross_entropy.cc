// softmax_cross_entropy.cc: launchers of softmax cross-entropy.
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {

void softmax_cross_entropy(const SoftmaxCrossEntropyArgs& args) {
  constexpr int kThreads = 256;
  const Scratch losses(args.tokens * sizeof(float));
  launch("softmax_cross_entropy", "softmax_cross_entropy_f32", Grid{args.tokens}, Threads{kThreads}, 0, args,
         losses.as<float>());
  launch("softmax_cross_entropy", "softmax_cross_entropy_mean_f32", Grid{1}, Threads{kThreads}, 0,
         losses.as<const float>(), args.tokens, args.loss);
}

}  // namespace spark::cuda
