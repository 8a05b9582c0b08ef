#include "backend/cpu/weight.h"

#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "core/thread_pool.h"

namespace spark::cpu {
void decode(const Weight& weight, int64_t row, int64_t col, int64_t count, float* dst) {
  gemm().decode(weight, row, col, count, dst);
}

void weight_norm2(const WeightNorm2Args& args) {
  constexpr int64_t kPiece = 256;
  const int64_t cols = args.weight.cols;
  const int64_t grain = 1 + (1 << 16) / (cols + 1);
  parallel_for(args.weight.rows, grain, [&](int64_t begin, int64_t end) {
    float piece[kPiece];
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (int64_t col = 0; col < cols; col += kPiece) {
        const int64_t count = std::min(kPiece, cols - col);
        decode(args.weight, row, col, count, piece);
        for (int64_t j = 0; j < count; ++j) sum += static_cast<double>(piece[j]) * piece[j];
      }
      args.out[row] = static_cast<float>(sum);
    }
  });
}

}  // namespace spark::cpu
