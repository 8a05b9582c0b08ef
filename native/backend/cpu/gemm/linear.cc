// linear.cc: linear layers forward and backward in f32 and bf16.
#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/activation.h"
#include "backend/cpu/gemm/columns.h"
#include "backend/cpu/gemm/dot_gemm.h"
#include "backend/cpu/gemm/linear_blocks.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/quantize/nvfp4.h"
#include "backend/cpu/simd/cpu_kernels.h"

namespace spark::cpu {

namespace {

// y from the sums of a row.
void store_linear(const LinearArgs& args, int64_t t, int64_t o, int64_t count, const float* sums) {
  const int64_t at = t * args.weight.rows + o;
  float values[kTile];
  std::copy_n(sums, count, values);
  if (args.row_scale) {
    for (int64_t j = 0; j < count; ++j) values[j] *= args.row_scale[o + j];
  }
  if (args.gate) {
    for (int64_t j = 0; j < count; ++j) values[j] *= args.gate[at + j];
  }
  if (args.bias) {
    for (int64_t j = 0; j < count; ++j) values[j] += args.bias[o + j];
  }
  activate(args.activation, count, values);
  if (args.residual) {
    for (int64_t j = 0; j < count; ++j) values[j] += args.residual[at + j];
  }
  std::copy_n(values, count, static_cast<float*>(args.y) + at);
}

}  // namespace

void linear(const LinearArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows;
  const auto* x = static_cast<const float*>(args.x);
  const auto store = [&](int64_t t, int64_t o, int64_t count, const float* sums) {
    store_linear(args, t, o, count, sums);
  };
  if (args.compute == Compute::kBF16 && kernels().dot.bf16) {
    return product_bf16(args.tokens, x, args.weight, store);
  }
  if (args.compute == Compute::kI8 && args.weight.packed) {
    return product_integer(args.tokens, x, args.weight, store);
  }
  std::vector<float> rounded;
  if (args.compute == Compute::kNVFP4) rounded = rounded_to_nvfp4(x, args.tokens, in, args.x_scale);
  if (args.compute == Compute::kI8) rounded = rounded_to_integers(x, args.tokens * in);
  if (!rounded.empty()) x = rounded.data();
  const Segment segment{rows_of(x, in), rows_of(args.weight), in};
  if (args.row_scale || args.gate) return product(args.tokens, out, {segment}, store);
  auto* y = static_cast<float*>(args.y);
  product_into({args.bias, args.residual, false, args.activation, y, out, true}, args.tokens, out, segment,
               StoreBy::kRows);
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
