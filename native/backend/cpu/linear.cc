#include <algorithm>

#include "backend/cpu/columns.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/epilogue.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/product.h"

namespace spark::cpu {

void linear(const LinearArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows;
  product(args.tokens, out, {{rows_of(args.x, in), rows_of(args.weight), in}},
          [&](int64_t t, int64_t o, int64_t count, const float* sums) {
            const int64_t at = t * out + o;
            float values[kTile];
            std::copy_n(sums, count, values);
            if (args.row_scale) {
              for (int64_t j = 0; j < count; ++j) values[j] *= args.row_scale[o + j];
            }
            if (args.bias) {
              for (int64_t j = 0; j < count; ++j) values[j] += args.bias[o + j];
            }
            activate(args.activation, count, values);
            if (args.residual) {
              for (int64_t j = 0; j < count; ++j) values[j] += args.residual[at + j];
            }
            std::copy_n(values, count, args.y + at);
          });
}

void linear_backward(const LinearBackwardArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows, tokens = args.tokens;
  if (args.dx) {
    product(tokens, in, {{rows_of(args.dy, out), columns_of(args.weight), out}},
            [&](int64_t t, int64_t i, int64_t count, const float* sums) {
              std::copy_n(sums, count, args.dx + t * in + i);
            });
  }
  if (args.dweight) {
    product(out, in, {{columns_of(args.dy, out), columns_of(args.x, in), tokens}},
            [&](int64_t o, int64_t i, int64_t count, const float* sums) {
              std::copy_n(sums, count, args.dweight + o * in + i);
            });
  }
  if (args.dbias) {
    column_sums(
        tokens, out, [&](int64_t at) { return args.dy[at]; },
        [&](int64_t o, float sum) { args.dbias[o] = sum; });
  }
}

}  // namespace spark::cpu
