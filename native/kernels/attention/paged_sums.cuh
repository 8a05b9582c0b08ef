// paged_sums.cuh: what rows of attention over blocks sum, and what becomes of it.
#pragma once

#include "kernels/attention/paged.cuh"

namespace spark {
namespace {

// What a row has summed: the largest score and Σ e^(w − largest).
struct RowSum {
  float largest, total;
};

__device__ RowSum nothing() { return {-INFINITY, 0}; }

// The factors that bring two sums into one unit; the second one has terms.
struct Factors {
  float largest, before, now;

  __device__ Factors(const RowSum& sum, const RowSum& chunk)
      : largest(fmaxf(sum.largest, chunk.largest)),
        before(sum.total == 0 ? 0 : expf(sum.largest - largest)),
        now(expf(chunk.largest - largest)) {}
  // Where nothing came before, `sum` is memory that nothing has written: it is not read.
  __device__ float merge(const float& sum, float part) const {
    return before == 0 ? part * now : sum * before + part * now;
  }
};

// The factor of what a head has summed, which makes it y.
__device__ float last_factor(const PagedAttentionArgs& args, const RowSum& sum, int64_t head) {
  if (sum.total == 0) return 0;
  if (!args.sinks) return 1 / sum.total;
  const float sink = args.sinks[head], largest = fmaxf(sum.largest, sink);
  const float own = expf(sum.largest - largest);
  return own / (sum.total * own + expf(sink - largest));
}

// y of a row that takes part in nothing.
__device__ float idle(int64_t token) { return token == kBroken ? NAN : 0; }

}  // namespace
}  // namespace spark
