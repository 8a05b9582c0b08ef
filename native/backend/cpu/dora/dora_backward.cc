// dora_backward.cc: gradients of a DoRA layer.
#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/dora/dora.h"
#include "backend/cpu/gemm/columns.h"
#include "backend/cpu/gemm/product.h"

namespace spark::cpu {
namespace {

void magnitude_and_bias(const DoraBackwardArgs& args) {
  const int64_t out = args.weight.rows;
  column_sums(
      args.tokens, out, [&](int64_t at) { return args.dy[at] * args.z[at]; },
      [&](int64_t o, float sum) { args.dmagnitude[o] = sum / std::max(args.norm[o], kSmallestNorm); });
  if (!args.dbias) return;
  column_sums(
      args.tokens, out, [&](int64_t at) { return args.dy[at]; },
      [&](int64_t o, float sum) { args.dbias[o] = sum; });
}

// db = s · dzᵀ·xa and da = s · qᵀ·d.
void factors(const DoraBackwardArgs& args, const float* q) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  const float scale = args.low_rank.scale;
  product(out, rank, {{columns_of(args.dy, out), columns_of(args.xa, rank), args.tokens}},
          [&](int64_t o, int64_t r, int64_t count, const float* sums) {
            const float factor = scale * args.gain[o];
            for (int64_t j = 0; j < count; ++j) args.db[o * rank + r + j] = factor * sums[j];
          });
  product(rank, in, {{columns_of(q, rank), masked(columns_of(args.x, in), args.mask), args.tokens}},
          [&](int64_t r, int64_t i, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.da[r * in + i + j] = scale * sums[j];
          });
}

// What the norm adds: dbᵀ −= s · c ∘ ([A | s·G] · [W | B]ᵀ) and da −= s · [(c ∘ B)ᵀ | s·P] · [Wᵀ | Aᵀ]ᵀ with
// P = Bᵀ·(c ∘ B).
void norm_gradient(const DoraBackwardArgs& args, const float* scales) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  const auto& [_, scale, a, b] = args.low_rank;
  std::vector<float> c(out);
  for (int64_t o = 0; o < out; ++o) {
    c[o] = args.gain[o] * args.dmagnitude[o] / std::max(args.norm[o], kSmallestNorm);
  }
  const std::vector<float> g = gram(args.low_rank, in);
  product(rank, out,
          {{rows_of(a, in), rows_of(args.weight), in},
           {scaled(rows_of(g.data(), rank), scales), rows_of(b, rank), rank}},
          [&, scale = scale](int64_t r, int64_t o, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.db[(o + j) * rank + r] -= scale * c[o + j] * sums[j];
          });
  std::vector<float> p(rank * rank);
  const Operand weighted_b = scaled(columns_of(b, rank), c.data());
  product(rank, rank, {{weighted_b, columns_of(b, rank), out}},
          [&](int64_t r, int64_t q, int64_t count, const float* sums) {
            std::copy_n(sums, count, p.data() + r * rank + q);
          });
  product(rank, in,
          {{weighted_b, columns_of(args.weight), out},
           {scaled(rows_of(p.data(), rank), scales), columns_of(a, in), rank}},
          [&, scale = scale](int64_t r, int64_t i, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.da[r * in + i + j] -= scale * sums[j];
          });
}

// dx = [dy ∘ base_gain | s·q] · [W | A], times the mask; then the base path of dropout, dy·W.
void input_gradient(const DoraBackwardArgs& args, const float* q, const float* scales) {
  const int64_t in = args.weight.cols, out = args.weight.rows, rank = args.low_rank.rank;
  std::vector<float> gain(args.gain, args.gain + out);
  if (args.mask) {
    for (float& value : gain) value -= 1;
  }
  product(args.tokens, in,
          {{scaled(rows_of(args.dy, out), gain.data()), columns_of(args.weight), out},
           {scaled(rows_of(q, rank), scales), columns_of(args.low_rank.a, in), rank}},
          [&](int64_t t, int64_t i, int64_t count, const float* sums) {
            const int64_t at = t * in + i;
            for (int64_t j = 0; j < count; ++j) {
              args.dx[at + j] = args.mask ? args.mask[at + j] * sums[j] : sums[j];
            }
          });
  if (!args.mask) return;
  product(args.tokens, in, {{rows_of(args.dy, out), columns_of(args.weight), out}},
          [&](int64_t t, int64_t i, int64_t count, const float* sums) {
            for (int64_t j = 0; j < count; ++j) args.dx[t * in + i + j] += sums[j];
          });
}

}  // namespace

void dora_backward(const DoraBackwardArgs& args) {
  const int64_t out = args.weight.rows, rank = args.low_rank.rank;
  const std::vector<float> scales(rank, args.low_rank.scale);
  std::vector<float> q(args.tokens * rank);  // dz·B
  product(args.tokens, rank,
          {{scaled(rows_of(args.dy, out), args.gain), columns_of(args.low_rank.b, rank), out}},
          [&](int64_t t, int64_t r, int64_t count, const float* sums) {
            std::copy_n(sums, count, q.data() + t * rank + r);
          });
  magnitude_and_bias(args);
  factors(args, q.data());
  if (args.exact_norm) norm_gradient(args, scales.data());
  if (args.dx) input_gradient(args, q.data(), scales.data());
}

}  // namespace spark::cpu
