// dora_forward.cc: a DoRA layer forward, with and without dropout.
#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/product.h"
#include "backend/cpu/quantize/nvfp4.h"

namespace spark::cpu {
namespace {

// [d | s·xa] · [W | B]ᵀ in one pass; gain and bias when the sum is complete.
void forward(const DoraForwardArgs& args, const float* scale) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  std::vector<float> rounded;
  if (args.compute == Compute::kNVFP4) rounded = rounded_to_nvfp4(args.x, args.tokens, in);
  const float* x = args.compute == Compute::kNVFP4 ? rounded.data() : args.x;
  product(args.tokens, out,
          {{rows_of(x, in), rows_of(args.weight), in},
           {scaled(rows_of(args.xa, rank), scale), rows_of(args.low_rank.b, rank), rank}},
          [&](int64_t t, int64_t o, int64_t count, const float* sums) {
            if (args.z) std::copy_n(sums, count, args.z + t * out + o);
            float* y = args.y + t * out + o;
            for (int64_t j = 0; j < count; ++j) {
              y[j] = args.gain[o + j] * sums[j] + (args.bias ? args.bias[o + j] : 0);
            }
          });
}

// With dropout the base path sees x and the adapter path d = mask ∘ x: two base products.
void forward_dropout(const DoraForwardArgs& args, const float* scale) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  LinearArgs plain{};
  plain.weight = args.weight;
  plain.tokens = args.tokens;
  plain.x = args.x;
  plain.bias = args.bias;
  plain.y = args.y;
  linear(plain);
  product(args.tokens, out, {{masked(rows_of(args.x, in), args.mask), rows_of(args.weight), in}},
          [&](int64_t t, int64_t o, int64_t count, const float* sums) {
            float* y = args.y + t * out + o;
            for (int64_t j = 0; j < count; ++j) y[j] += (args.gain[o + j] - 1) * sums[j];
            if (args.z) std::copy_n(sums, count, args.z + t * out + o);
          });
  product(args.tokens, out, {{scaled(rows_of(args.xa, rank), scale), rows_of(args.low_rank.b, rank), rank}},
          [&](int64_t t, int64_t o, int64_t count, const float* sums) {
            float* y = args.y + t * out + o;
            for (int64_t j = 0; j < count; ++j) y[j] += args.gain[o + j] * sums[j];
            if (!args.z) return;
            float* z = args.z + t * out + o;
            for (int64_t j = 0; j < count; ++j) z[j] += sums[j];
          });
}

}  // namespace

void dora_forward(const DoraForwardArgs& args) {
  const int64_t in = args.weight.cols, rank = args.low_rank.rank;
  product(args.tokens, rank, {{masked(rows_of(args.x, in), args.mask), rows_of(args.low_rank.a, in), in}},
          [&](int64_t t, int64_t r, int64_t count, const float* sums) {
            std::copy_n(sums, count, args.xa + t * rank + r);
          });
  const std::vector<float> scale(rank, args.low_rank.scale);
  if (args.mask) {
    forward_dropout(args, scale.data());
  } else {
    forward(args, scale.data());
  }
}

}  // namespace spark::cpu
