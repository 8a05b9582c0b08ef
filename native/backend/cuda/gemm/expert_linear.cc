// expert_linear.cc: launchers of linear layers of experts.
#include <algorithm>
#include <string>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/launch.h"
#include "core/error.h"
#include "kernels/gemm/blocks.h"
#include "kernels/gemm/product_args.h"

namespace spark::cuda {
namespace {

using namespace expert_linear_block;

// Some tokens, few enough for one launch of expert_sort.
void launch_tokens(const ExpertLinearArgs& args) {
  const int64_t count = args.tokens * args.choices, out = args.weight.rows / args.experts;
  const int64_t groups = ceil_div(count, kRows) + std::min(args.experts + 1, count);
  const Scratch order(count * sizeof(int32_t)), table(groups * sizeof(ExpertGroup)), length(sizeof(int32_t));
  const ExpertGroups sorted{order.as<int32_t>(), table.as<ExpertGroup>(), length.as<int32_t>()};
  launch("expert_linear", "expert_sort", Grid{1}, Threads{kSortThreads}, 0, args.choice, count, args.experts,
         sorted);
  launch("expert_linear", std::string("expert_linear_") + dtype_name(args.weight.dtype),
         Grid{groups * ceil_div(out, kCols)}, Threads{kThreads}, 0, args, sorted, groups);
}

}  // namespace

void expert_linear(const ExpertLinearArgs& args) {
  if (args.experts > kMaxExperts) {
    throw Error("ERR_UNSUPPORTED",
                message("there are ", args.experts, " experts; the cuda backend has up to ", kMaxExperts));
  }
  const int64_t x = (args.per_choice ? args.choices : 1) * args.weight.cols;
  const int64_t y = args.choices * (args.weight.rows / args.experts);
  if (args.tokens * y == 0) return;
  launch_in_pieces(args.tokens, args.choices, [&](int64_t first, int64_t end) {
    ExpertLinearArgs piece = args;
    piece.tokens = end - first;
    piece.x += first * x;
    piece.choice += first * args.choices;
    piece.y += first * y;
    launch_tokens(piece);
  });
}

}  // namespace spark::cuda
