// merge_backward.cc: launchers of the gradient of a merged DoRA weight.
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/gemm/product.h"
#include "backend/cuda/runtime/launch.h"

namespace spark::cuda {
namespace {

constexpr int kThreads = 256;

void scale(float factor, int64_t count, float* values) {
  launch("merge_backward", "merge_scale_f32", Grid{ceil_div(count, kThreads)}, Threads{kThreads}, 0, factor,
         count, values);
}

}  // namespace

void dora_merge_backward(const DoraMergeBackwardArgs& args) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols, rank = args.low_rank.rank;
  launch("merge_backward", std::string("merge_gradient_") + dtype_name(args.weight.dtype), Grid{rows},
         Threads{kThreads}, 0, args);
  // da = Bᵀ·dv and db = dv·Aᵀ, times s
  LinearBackwardArgs da{};
  da.weight = as_weight(args.dv, rank, cols);  // not read
  da.tokens = rows;
  da.x = args.dv;
  da.dy = args.low_rank.b;
  da.dweight = args.da;
  linear_backward(da);
  LinearArgs db{};
  db.weight = as_weight(args.low_rank.a, rank, cols);
  db.tokens = rows;
  db.x = args.dv;
  db.y = args.db;
  linear(db);
  scale(args.low_rank.scale, rank * cols, args.da);
  scale(args.low_rank.scale, rows * rank, args.db);
}

}  // namespace spark::cuda
