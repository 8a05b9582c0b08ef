// dora_mixed.cc: a batch whose rows use different DoRA adapters of one layer.
#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/gemm_kernels.h"
#include "backend/cpu/gemm/product.h"
#include "backend/labels.h"

namespace spark::cpu {
namespace {

float bias_at(const DoraMixedArgs& args, int64_t o) { return args.bias ? args.bias[o] : 0; }

// The sums of the frozen weight; rows without an adapter are done.
void base(const DoraMixedArgs& args) {
  const int64_t in = args.weight.cols, out = args.weight.rows;
  product(args.tokens, out, {{rows_of(args.x, in), rows_of(args.weight), in}},
          [&](int64_t t, int64_t o, int64_t count, const float* sums) {
            float* y = args.y + t * out + o;
            std::copy_n(sums, count, y);
            if (args.index[t] >= 0 || !args.bias) return;
            for (int64_t j = 0; j < count; ++j) y[j] += args.bias[o + j];
          });
}

// x[rows[i], :]·Aᵀ, [rows, R].
std::vector<float> down(const DoraMixedArgs& args, const LowRank& low_rank,
                        const std::vector<int64_t>& rows) {
  const int64_t in = args.weight.cols, rank = low_rank.rank, count = static_cast<int64_t>(rows.size());
  std::vector<float> x(count * in), xa(count * rank);
  for (int64_t i = 0; i < count; ++i) std::copy_n(args.x + rows[i] * in, in, x.data() + i * in);
  product(count, rank, {{rows_of(x.data(), in), rows_of(low_rank.a, in), in}},
          [&](int64_t i, int64_t r, int64_t width, const float* sums) {
            std::copy_n(sums, width, xa.data() + i * rank + r);
          });
  return xa;
}

// Finishes the rows of one adapter. Trap: a chunk of the rank is added at a time, as dora_forward, where it
// is the second segment of one product, adds it.
void adapt(const DoraMixedArgs& args, const DoraMixedAdapter& adapter, const std::vector<int64_t>& rows) {
  const int64_t out = args.weight.rows, rank = adapter.low_rank.rank;
  const std::vector<float> xa = down(args, adapter.low_rank, rows);
  const std::vector<float> scale(rank, adapter.low_rank.scale);
  int64_t k = 0;
  do {
    const int64_t depth = std::min(kChunk, rank - k);
    const bool last = k + depth == rank;
    product(static_cast<int64_t>(rows.size()), out,
            {{scaled(rows_of(xa.data() + k, rank), scale.data() + k), rows_of(adapter.low_rank.b + k, rank),
              depth}},
            [&](int64_t i, int64_t o, int64_t count, const float* sums) {
              float* y = args.y + rows[i] * out + o;
              for (int64_t j = 0; j < count; ++j) y[j] += sums[j];
              for (int64_t j = 0; last && j < count; ++j) {
                y[j] = adapter.gain[o + j] * y[j] + bias_at(args, o + j);
              }
            });
    k += depth;
  } while (k < rank);
}

}  // namespace

void dora_mixed(const DoraMixedArgs& args) {
  std::vector<std::vector<int64_t>> rows(args.count);  // of each adapter
  for (int64_t t = 0; t < args.tokens; ++t) {
    const int64_t adapter = expect_adapter(args.index, t, args.count);
    if (adapter >= 0) rows[adapter].push_back(t);
  }
  base(args);
  for (int64_t i = 0; i < args.count; ++i) {
    if (!rows[i].empty()) adapt(args, args.adapters[i], rows[i]);
  }
}

}  // namespace spark::cpu
