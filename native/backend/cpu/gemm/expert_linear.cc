// expert_linear.cc: linear layers of experts: the rows that chose an expert are multiplied by its weight at
// once.
#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/scratch.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Choices sorted by expert; those of one expert keep their order.
struct SortedChoices {
  std::vector<int64_t> expert;  // of each choice, as read once
  std::vector<int64_t> order;   // the choices
  std::vector<int64_t> start;   // [experts + 1], in `order`
};

SortedChoices sorted(const ExpertLinearArgs& args) {
  const int64_t count = args.tokens * args.choices;
  SortedChoices result{{args.choice, args.choice + count}, {}, {}};
  result.order.resize(count);
  result.start.resize(args.experts + 1);
  for (const int64_t expert : result.expert) {
    if (expert < 0 || expert >= args.experts) {
      throw Error("ERR_ARGUMENT", message("a choice is ", expert, ", not in [0, ", args.experts, ")"));
    }
    ++result.start[expert + 1];
  }
  std::partial_sum(result.start.begin(), result.start.end(), result.start.begin());
  std::vector<int64_t> next = result.start;
  for (int64_t i = 0; i < count; ++i) result.order[next[result.expert[i]]++] = i;
  return result;
}

// x[i, :] = the row of choice order[i]
void gather_rows(const ExpertLinearArgs& args, const SortedChoices& choices, float* x) {
  const int64_t cols = args.weight.cols;
  parallel_for(choices.order.size(), grain_for(cols, 1 << 16), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = args.per_choice ? choices.order[i] : choices.order[i] / args.choices;
      std::copy_n(args.x + row * cols, cols, x + i * cols);
    }
  });
}

// Rows of x by rows of the weight, which begin with a panel where that is packed.
std::vector<Region> regions_of(const ExpertLinearArgs& args, const SortedChoices& choices) {
  const int64_t out = args.weight.rows / args.experts;
  std::vector<Region> regions;
  for (int64_t expert = 0; expert < args.experts; ++expert) {
    const int64_t row = choices.start[expert], rows = choices.start[expert + 1] - row;
    if (rows == 0 || out == 0) continue;
    const int64_t ahead = args.weight.packed ? expert * out % kPanelRows : 0;
    regions.push_back({row, rows, expert * out - ahead, out + ahead});
  }
  return regions;
}

}  // namespace

void expert_linear(const ExpertLinearArgs& args) {
  const SortedChoices choices = sorted(args);
  const int64_t in = args.weight.cols, out = args.weight.rows / args.experts;
  const Scratch x(choices.order.size() * in);
  gather_rows(args, choices, x.data());
  product_regions(regions_of(args, choices), {rows_of(x.data(), in), rows_of(args.weight), in},
                  [&](int64_t row, int64_t col, int64_t count, const float* sums) {
                    const int64_t choice = choices.order[row], first = choices.expert[choice] * out;
                    float* y = args.y + choice * out - first;
                    for (int64_t o = std::max(col, first); o < col + count; ++o) {
                      const float sum = sums[o - col];
                      y[o] = args.bias ? sum + args.bias[o] : sum;
                    }
                  });
}

}  // namespace spark::cpu
