// column_sums.h: the second of the two launches that sum columns, whose first sums them in chunks of the
// rows.
#pragma once

#include "backend/cuda/runtime/launch.h"
#include "kernels/gemm/blocks.h"

namespace spark::cuda {

// out[col] = Σ_chunk partial[chunk, col] / max(norm[col], 1e-12). norm null: not divided.
inline void add_column_sums(const float* partial, int64_t chunks, int64_t cols, const float* norm,
                            float* out) {
  constexpr int kThreads = linear_block::kThreads;
  launch("linear", "column_sums_finish_f32", Grid{ceil_div(cols, kThreads)}, Threads{kThreads}, 0, partial,
         chunks, cols, norm, out);
}

}  // namespace spark::cuda
