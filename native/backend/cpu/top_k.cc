#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/top_k_order.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

template <typename V>
void top_k_row(const TopKArgs& args, int64_t outer, int64_t inner, std::vector<V>& x,
               std::vector<int64_t>& order) {
  x.resize(static_cast<size_t>(args.size));
  order.resize(x.size());
  load_elements(args.dtype, args.x, outer * args.size * args.inner + inner, args.inner, args.size, x.data());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int64_t i, int64_t j) {
    return comes_before(args, x[static_cast<size_t>(i)], i, x[static_cast<size_t>(j)], j);
  };
  if (args.k == 1) {
    if (!order.empty()) order[0] = *std::min_element(order.begin(), order.end(), before);
  } else {
    std::partial_sort(order.begin(), order.begin() + args.k, order.end(), before);
  }
  for (int64_t n = 0; n < args.k; ++n) {
    const int64_t at = (outer * args.k + n) * args.inner + inner;
    const int64_t index = order[static_cast<size_t>(n)];
    args.indices[at] = index;
    if (args.values) store_elements(args.dtype, &x[static_cast<size_t>(index)], 1, args.values, at, 1);
  }
}

}  // namespace

void top_k(const TopKArgs& args) {
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    parallel_for(args.outer * args.inner, 1 + (1 << 12) / (args.size + 1), [&](int64_t begin, int64_t end) {
      std::vector<V> x;
      std::vector<int64_t> order;
      for (int64_t row = begin; row < end; ++row)
        top_k_row<V>(args, row / args.inner, row % args.inner, x, order);
    });
  });
}

}  // namespace spark::cpu
