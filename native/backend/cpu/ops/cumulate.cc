// cumulate.cc: cumulative reductions along an axis.
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/grain.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

template <typename V>
void cumulate_row(const CumulateArgs& args, int64_t outer, int64_t inner) {
  using Sum = std::conditional_t<std::is_floating_point_v<V>, double, V>;
  Sum value = args.fn == CumulateFn::kSum ? 0 : 1;
  for (int64_t n = 0; n < args.size; ++n) {
    const int64_t position = args.reverse ? args.size - 1 - n : n;
    const int64_t at = (outer * args.size + position) * args.inner + inner;
    V x;
    load_elements(args.dtype, args.x, at, 1, 1, &x);
    const Sum before = value;
    value = args.fn == CumulateFn::kSum ? wrap_add(value, static_cast<Sum>(x))
                                        : wrap_mul(value, static_cast<Sum>(x));
    const V y = static_cast<V>(args.exclusive ? before : value);
    store_elements(args.dtype, &y, 1, args.y, at, 1);
  }
}

}  // namespace

void cumulate(const CumulateArgs& args) {
  with_number(args.dtype, [&](auto number) {
    parallel_for(args.outer * args.inner, grain_for(args.size, 1 << 12), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        cumulate_row<decltype(number)>(args, row / args.inner, row % args.inner);
      }
    });
  });
}

}  // namespace spark::cpu
