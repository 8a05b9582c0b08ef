// epilogue.cc: bias, activation and residual applied to accumulators.
#include "backend/cpu/gemm/epilogue.h"

#include <algorithm>

#include "backend/cpu/gemm/activation.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {
namespace {

// A row whose residual comes after its activation, and y may be the residual.
void store_row(const float* sums, int64_t count, const Epilogue& to) {
  constexpr int64_t kPiece = 256;
  float buffer[kPiece];
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t piece = std::min(kPiece, count - done);
    Epilogue with_bias = epilogue_at(to, 0, done);
    with_bias.residual = nullptr;
    with_bias.activation = Activation::kNone;
    with_bias.y = buffer;
    kernels().gemm.store_rows(sums + done, 0, 1, piece, with_bias);
    activate(to.activation, piece, buffer);
    for (int64_t j = done; j < done + piece; ++j) to.y[j] = buffer[j - done] + to.residual[j];
  }
}

}  // namespace

void activate_rows(int64_t rows, int64_t cols, const Epilogue& to) {
  if (is_bounds(to.activation)) return;
  for (int64_t i = 0; i < rows; ++i) activate(to.activation, cols, to.y + i * to.stride);
}

void apply_epilogue(const float* sums, int64_t pitch, int64_t rows, int64_t cols, const Epilogue& to) {
  if (is_bounds(to.activation) || !to.residual || to.residual_first) {
    kernels().gemm.store_rows(sums, pitch, rows, cols, to);
    return activate_rows(rows, cols, to);
  }
  for (int64_t i = 0; i < rows; ++i) store_row(sums + i * pitch, cols, epilogue_at(to, i, 0));
}

}  // namespace spark::cpu
