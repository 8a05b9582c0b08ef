// binary.cc: binary elementwise operations with broadcasting.
#include "backend/binary_functions.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/elements.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "backend/cpu/simd/functions.h"
#include "backend/cpu/strided.h"
#include "core/error.h"

namespace spark::cpu {
namespace {

// Calls body with the function as a callable, so that the loop around it is compiled for each.
template <typename V, typename Body>
void with_function(BinaryFn fn, DType dtype, const Body& body) {
  constexpr bool floats = std::is_floating_point_v<V>;
  if (!defined_for(fn, floats)) {
    throw Error("ERR_UNSUPPORTED", message("the cpu backend has no such function of ", dtype_name(dtype)));
  }
  with_constant(fn, [&](auto constant) {
    constexpr BinaryFn known = constant.value;
    if constexpr (defined_for(known, floats)) {
      body([](V a, V b) { return binary_value(known, a, b); });
    }
  });
}

template <typename V, typename Fn>
void compute(int64_t count, const V* a, bool a_repeats, const V* b, bool b_repeats, const Fn& fn, V* y) {
  if (b_repeats) {
    const V right = *b;
    for (int64_t i = 0; i < count; ++i) y[i] = fn(a[a_repeats ? 0 : i], right);
  } else if (a_repeats) {
    const V left = *a;
    for (int64_t i = 0; i < count; ++i) y[i] = fn(left, b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) y[i] = fn(a[i], b[i]);
  }
}

// Calls compute(count, a, whether it repeats, b, whether it repeats, y) for runs of elements.
template <typename V, typename Compute>
void for_each_run(const BinaryArgs& args, const Compute& compute) {
  const DType result = returns_bool(args.fn) ? DType::kBool : args.dtype;
  for_each_row<2>(args.shape, {&args.a_strides, &args.b_strides},
                  [&](int64_t row, int64_t size, const auto& offset, const auto& step) {
                    V left[kRun], right[kRun], written[kRun];
                    for (int64_t at = 0; at < size; at += kRun) {
                      const int64_t count = std::min(kRun, size - at);
                      const auto read = [&](const void* base, int n, V* buffer) {
                        return numbers(args.dtype, base, offset[n] + at * step[n], step[n],
                                       step[n] == 0 ? 1 : count, buffer);
                      };
                      const V *a = read(args.a, 0, left), *b = read(args.b, 1, right);
                      const Results<V> y(result, args.y, row * size + at, count, written);
                      compute(count, a, step[0] == 0, b, step[1] == 0, y.values);
                      y.store();
                    }
                  });
}

}  // namespace

void binary(const BinaryArgs& args) {
  if (domain_of(args.dtype) == Domain::kFloat && has_loop(args.fn)) {
    const ElementwiseKernels& loops = kernels().elementwise;
    return for_each_run<float>(
        args, [&](int64_t count, const float* a, bool a_repeats, const float* b, bool b_repeats, float* y) {
          loops.binary(args.fn, a, a_repeats ? 0 : 1, b, b_repeats ? 0 : 1, count, y);
        });
  }
  with_number(args.dtype, [&](auto number) {
    using V = decltype(number);
    with_function<V>(args.fn, args.dtype, [&](auto fn) {
      for_each_run<V>(args, [&](int64_t count, const V* a, bool a_repeats, const V* b, bool b_repeats, V* y) {
        compute(count, a, a_repeats, b, b_repeats, fn, y);
      });
    });
  });
}

}  // namespace spark::cpu
