#include <vector>

#include "backend/cpu/cpu.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// Unsigned sums wrap where signed ones would be undefined.
template <typename X, typename W>
void multiply(const LinearIntegerArgs& args) {
  const auto* x = static_cast<const X*>(args.x);
  const auto* w = static_cast<const W*>(args.w);
  const int64_t grain = 1 + (1 << 16) / (args.tokens * args.cols + 1);
  parallel_for(args.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      const uint32_t x_zero = args.x_zero ? args.x_zero[t] : 0;
      for (int64_t o = begin; o < end; ++o) {
        const uint32_t w_zero = args.w_zero ? args.w_zero[o] : 0;
        uint32_t sum = 0;
        for (int64_t i = 0; i < args.cols; ++i) {
          sum += (static_cast<uint32_t>(x[t * args.cols + i]) - x_zero) *
                 (static_cast<uint32_t>(w[o * args.cols + i]) - w_zero);
        }
        args.y[t * args.rows + o] = static_cast<int32_t>(sum);
      }
    }
  });
}

}  // namespace

void linear_integer(const LinearIntegerArgs& args) {
  if (args.x_signed) {
    args.w_signed ? multiply<int8_t, int8_t>(args) : multiply<int8_t, uint8_t>(args);
  } else {
    args.w_signed ? multiply<uint8_t, int8_t>(args) : multiply<uint8_t, uint8_t>(args);
  }
}

}  // namespace spark::cpu
