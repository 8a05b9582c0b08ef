#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/functions.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
void apply(const Function& function, float* x, int64_t count) {
  with_unary_function<float>(function, [&](auto fn) {
    for (int64_t i = 0; i < count; ++i) x[i] = fn(x[i]);
  });
}

void unary(const UnaryArgs& args) {
  const bool predicate = args.fn == UnaryFn::kIsNaN || args.fn == UnaryFn::kIsInf;
  const DType result = predicate ? DType::kBool : args.dtype;
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    if (!defined_for(args.fn, std::is_floating_point_v<V>)) {
      throw Error("ERR_UNSUPPORTED",
                  message("the cpu backend has no such function of ", dtype_name(args.dtype)));
    }
    with_unary_function<V>({args.fn, args.alpha, args.beta}, [&](auto fn) {
      parallel_for(args.count, 1 << 13, [&](int64_t begin, int64_t end) {
        V read[kRun], written[kRun];
        for (int64_t at = begin; at < end; at += kRun) {
          const int64_t count = std::min(kRun, end - at);
          const V* x = numbers(args.dtype, args.x, at, 1, count, read);
          const Results<V> y(result, args.y, at, count, written);
          for (int64_t i = 0; i < count; ++i) y.values[i] = fn(x[i]);
          y.finish();
        }
      });
    });
  });
}

}  // namespace spark::cpu
