// unary.cc: unary elementwise operations.
#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "backend/cpu/simd/functions.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrain = 1 << 13;  // elements a thread takes at a time

// Functions of which f32 elements are computed 16 at a time.
void unary_loop(const UnaryArgs& args) {
  parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
    const auto alpha = static_cast<float>(args.alpha), beta = static_cast<float>(args.beta);
    float read[kRun], written[kRun];
    for (int64_t at = begin; at < end; at += kRun) {
      const int64_t count = std::min(kRun, end - at);
      const float* x = numbers(args.dtype, args.x, at, 1, count, read);
      const Results<float> y(args.dtype, args.y, at, count, written);
      kernels().elementwise.unary(args.fn, alpha, beta, x, count, y.values);
      y.store();
    }
  });
}

}  // namespace

void apply(const Function& function, float* x, int64_t count) {
  if (f32::covers(function.fn)) {
    kernels().elementwise.unary(function.fn, static_cast<float>(function.alpha),
                                static_cast<float>(function.beta), x, count, x);
    return;
  }
  with_unary_function<float>(function, [&](auto fn) {
    for (int64_t i = 0; i < count; ++i) x[i] = fn(x[i]);
  });
}

void unary(const UnaryArgs& args) {
  if (domain_of(args.dtype) == Domain::kFloat && f32::covers(args.fn)) return unary_loop(args);
  const DType result = returns_bool(args.fn) ? DType::kBool : args.dtype;
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    if (!defined_for(args.fn, std::is_floating_point_v<V>)) {
      throw Error("ERR_UNSUPPORTED",
                  message("the cpu backend has no such function of ", dtype_name(args.dtype)));
    }
    with_unary_function<V>({args.fn, args.alpha, args.beta}, [&](auto fn) {
      parallel_for(args.count, kGrain, [&](int64_t begin, int64_t end) {
        V read[kRun], written[kRun];
        for (int64_t at = begin; at < end; at += kRun) {
          const int64_t count = std::min(kRun, end - at);
          const V* x = numbers(args.dtype, args.x, at, 1, count, read);
          const Results<V> y(result, args.y, at, count, written);
          for (int64_t i = 0; i < count; ++i) y.values[i] = fn(x[i]);
          y.store();
        }
      });
    });
  });
}

}  // namespace spark::cpu
