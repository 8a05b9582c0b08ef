// softmax.cc: softmax and log softmax of rows, and their gradients.
#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

int64_t grain(int64_t cols) { return grain_for(cols, 1 << 12); }

}  // namespace

void softmax(const SoftmaxArgs& args) {
  const RowKernels& rows = kernels().rows;
  const int64_t cols = args.cols;
  parallel_for(args.rows, grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * cols;
      float* y = args.y + row * cols;
      const float max = rows.max(x, cols);
      const float sum = rows.exponentials(x, cols, max, args.log ? nullptr : y);
      if (args.log) {
        rows.normalize(x, cols, max, 1, nullptr, nullptr, y);
        rows.affine(y, cols, 1, -std::log(sum), y);
      } else {
        rows.affine(y, cols, 1 / sum, 0, y);
      }
    }
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  const RowKernels& rows = kernels().rows;
  const int64_t cols = args.cols;
  parallel_for(args.rows, grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *y = args.y + row * cols, *dy = args.dy + row * cols;
      const float sum = args.log ? rows.sum(dy, cols) : rows.dot(dy, y, cols);
      rows.softmax_backward(y, dy, cols, sum, args.log, args.dx + row * cols);
    }
  });
}

}  // namespace spark::cpu
