#include "backend/cpu/gemm/finish.h"

#include <algorithm>

#include "backend/cpu/gemm/epilogue.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

// A row whose residual comes after its activation, and y may be the residual.
void finish_row(const float* sums, int64_t count, const Finish& to) {
  constexpr int64_t kPiece = 256;
  float room[kPiece];
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t piece = std::min(kPiece, count - done);
    kernels().gemm.settle(sums + done, 0, 1, piece, {to.bias, nullptr, false, Activation::kNone, room, 0});
    activate(to.activation, piece, room);
    for (int64_t j = done; j < done + piece; ++j) to.y[j] = room[j - done] + to.residual[j];
  }
}

}  // namespace

void finish_sums(const float* sums, int64_t pitch, int64_t rows, int64_t cols, const Finish& to) {
  const bool simple = to.activation == Activation::kNone || to.activation == Activation::kRelu;
  if (simple || !to.residual || to.residual_first) {
    kernels().gemm.settle(sums, pitch, rows, cols, to);
    if (simple) return;
    for (int64_t i = 0; i < rows; ++i) activate(to.activation, cols, to.y + i * to.stride);
    return;
  }
  for (int64_t i = 0; i < rows; ++i) finish_row(sums + i * pitch, cols, finish_from(to, i, 0));
}

}  // namespace spark::cpu
