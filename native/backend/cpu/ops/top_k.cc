// top_k.cc: the k largest or smallest elements along an axis.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/parallel_tasks.h"
#include "backend/top_k_order.h"

namespace spark::cpu {
namespace {

// An element and its index along the axis.
template <typename V>
struct Found {
  V value;
  int64_t index;
};

// The first k elements of a row, in their order: `heap` has room for k, the last of them at its front, which
// gives way to each element that comes before it.
template <typename V>
void top_k_row(const TopKArgs& args, int64_t row, Found<V>* heap) {
  const int64_t outer = row / args.inner, inner = row % args.inner;
  const int64_t start = outer * args.size * args.inner + inner;
  const auto before = [&](const Found<V>& a, const Found<V>& b) {
    return comes_before(args, a.value, a.index, b.value, b.index);
  };
  V buffer[kRun];
  int64_t held = 0;
  for (int64_t begin = 0; begin < args.size; begin += kRun) {
    const int64_t count = std::min(kRun, args.size - begin);
    const V* values = numbers(args.dtype, args.x, start + begin * args.inner, args.inner, count, buffer);
    for (int64_t i = 0; i < count; ++i) {
      const Found<V> found{values[i], begin + i};
      if (held == args.k) {
        if (!before(found, heap[0])) continue;
        std::pop_heap(heap, heap + held--, before);
      }
      heap[held++] = found;
      std::push_heap(heap, heap + held, before);
    }
  }
  std::sort_heap(heap, heap + held, before);
  for (int64_t n = 0; n < args.k; ++n) {
    const int64_t at = (outer * args.k + n) * args.inner + inner;
    args.indices[at] = heap[n].index;
    if (args.values) store_elements(args.dtype, &heap[n].value, 1, args.values, at, 1);
  }
}

}  // namespace

void top_k(const TopKArgs& args) {
  if (args.k == 0) return;
  const int64_t rows = args.outer * args.inner, at_once = grain_for(args.size, 1 << 12);
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    const int64_t floats = args.k * static_cast<int64_t>(sizeof(Found<V>) / sizeof(float));
    parallel_tasks((rows + at_once - 1) / at_once, floats, [&](int64_t task, float* heap) {
      const int64_t end = std::min(rows, (task + 1) * at_once);
      for (int64_t row = task * at_once; row < end; ++row) {
        top_k_row<V>(args, row, reinterpret_cast<Found<V>*>(heap));
      }
    });
  });
}

}  // namespace spark::cpu
