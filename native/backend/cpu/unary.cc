#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/functions.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

template <typename V, typename Body>
void with_function(const Function& function, DType dtype, const Body& body) {
  if constexpr (std::is_floating_point_v<V>) {
    if (function.fn != UnaryFn::kBitwiseNot) return with_float_function<V>(function, body);
  } else {
    switch (function.fn) {
      case UnaryFn::kAbs:
        return body([](V x) { return x < V{0} ? wrap_sub(V{0}, x) : x; });
      case UnaryFn::kNeg:
        return body([](V x) { return wrap_sub(V{0}, x); });
      case UnaryFn::kSign:
        return body([](V x) { return static_cast<V>((x > V{0}) - (x < V{0})); });
      case UnaryFn::kRelu:
        return body([](V x) { return x < V{0} ? V{0} : x; });
      case UnaryFn::kNot:
        return body([](V x) { return V{x == V{0}}; });
      case UnaryFn::kBitwiseNot:
        return body([](V x) { return ~x; });
      default:
        break;
    }
  }
  throw Error("ERR_UNSUPPORTED", message("the cpu backend has no such function of ", dtype_name(dtype)));
}

}  // namespace

void apply(const Function& function, float* x, int64_t count) {
  with_float_function<float>(function, [&](auto fn) {
    for (int64_t i = 0; i < count; ++i) x[i] = fn(x[i]);
  });
}

void unary(const UnaryArgs& args) {
  const bool predicate = args.fn == UnaryFn::kIsNaN || args.fn == UnaryFn::kIsInf;
  const DType result = predicate ? DType::kBool : args.dtype;
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    with_function<V>({args.fn, args.alpha, args.beta}, args.dtype, [&](auto fn) {
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
