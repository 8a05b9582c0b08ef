#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

int64_t grain(int64_t cols) { return 1 + (1 << 12) / (cols + 1); }

}  // namespace

void softmax(const SoftmaxArgs& args) {
  const RowKernels& loops = kernels().rows;
  const int64_t cols = args.cols;
  parallel_for(args.rows, grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * cols;
      float* y = args.y + row * cols;
      const float largest = loops.largest(x, cols);
      const float sum = loops.exponentials(x, cols, largest, args.log ? nullptr : y);
      if (args.log) {
        loops.normalize(x, cols, largest, 1, nullptr, nullptr, y);
        loops.affine(y, cols, 1, -std::log(sum), y);
      } else {
        loops.affine(y, cols, 1 / sum, 0, y);
      }
    }
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  const RowKernels& loops = kernels().rows;
  const int64_t cols = args.cols;
  parallel_for(args.rows, grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *y = args.y + row * cols, *dy = args.dy + row * cols;
      const float sum = args.log ? loops.sum(dy, cols) : loops.dot(dy, y, cols);
      loops.softmax_backward(y, dy, cols, sum, args.log, args.dx + row * cols);
    }
  });
}

}  // namespace spark::cpu
