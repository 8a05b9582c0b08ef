// matmul.cc: launchers of batched matmul.
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"

namespace spark::cuda {

void matmul(const MatmulArgs& args) {
  constexpr int kTile = matmul_mma_block::kTile;
  static_assert(kTile == linear_block::kTile);
  const Grid grid{args.outer * args.inner * ceil_div(args.m, kTile) * ceil_div(args.n, kTile)};
  if (args.compute == Compute::kF32) {
    launch("linear", "matmul_f32", grid, Threads{linear_block::kThreads}, 0, args);
    return;
  }
  // With a single line or a single term one of the strides is free.
  const bool row_major_a = args.k == 1 || args.a.col == 1, row_major_b = args.k != 1 && args.b.row != 1;
  launch("matmul_mma",
         message("matmul_", row_major_a ? "n" : "t", row_major_b ? "n" : "t",
                 args.compute == Compute::kF16 ? "_f16" : "_bf16"),
         grid, Threads{matmul_mma_block::kThreads}, 0, args);
}

}  // namespace spark::cuda
