// paged_merge.cu: y of attention over blocks from the chunks of positions that blocks summed apart, in order
// (paged_attention.cu), a block for each head of a row. Reference:
// native/backend/cpu/attention/paged_attention.cc
#include "kernels/attention/paged.cuh"
#include "kernels/attention/paged_args.h"
#include "kernels/attention/paged_sums.cuh"
#include "kernels/quantize/nvfp4_store.cuh"
#include "kernels/reduce.cuh"
#include "kernels/store.cuh"

namespace spark {
namespace {

// Head blockIdx.x % H of row blockIdx.x / H, whose chunks were summed apart.
class MergedHead {
 public:
  __device__ MergedHead(const PagedAttentionArgs& args, const float* parts, int64_t chunks)
      : args_(args),
        parts_(parts),
        chunks_(chunks),
        token_(paged_row(args, blockIdx.x / args.shape.heads).token) {}

  // Element e of y.
  __device__ float value(int64_t e) const {
    constexpr int kAhead = 4;  // chunks whose loads are under way together
    const int64_t depth = args_.shape.depth;
    RowSum sum = nothing();
    float value = 0;
    for (int64_t first = 0; token_ >= 0 && first < chunks_; first += kAhead) {
      const float* part = parts_ + (blockIdx.x * chunks_ + first) * (depth + kPagedPartHead);
      RowSum sums[kAhead];
      float values[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        sums[k].total = first + k < chunks_ ? part[k * (depth + kPagedPartHead) + 1] : 0;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (sums[k].total == 0) continue;  // nothing else was written
        sums[k].largest = part[k * (depth + kPagedPartHead)];
        values[k] = part[k * (depth + kPagedPartHead) + kPagedPartHead + e];
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (sums[k].total == 0) continue;
        const Factors factors(sum, sums[k]);
        value = factors.merge(value, values[k]);
        sum = {factors.largest, factors.merge(sum.total, sums[k].total)};
      }
    }
    const float factor = last_factor(args_, sum, blockIdx.x % args_.shape.heads);
    return token_ < 0 ? idle(token_) : factor == 0 ? 0 : value * factor;
  }

  __device__ void store(int64_t e, float value) const {
    store_as(args_.y_dtype, args_.y, blockIdx.x * args_.shape.depth + e, value);
  }

 private:
  const PagedAttentionArgs& args_;
  const float* parts_;
  int64_t chunks_, token_;
};

}  // namespace
}  // namespace spark

extern "C" __global__ void paged_merge_f32(spark::PagedAttentionArgs args, const float* parts,
                                           int64_t chunks) {
  const spark::MergedHead head(args, parts, chunks);
  for (int64_t e = threadIdx.x; e < args.shape.depth; e += blockDim.x) head.store(e, head.value(e));
}

// The same in rows that are rounded for products, beside y where that is wanted. Heads are whole blocks.
extern "C" __global__ void paged_merge_rounded(spark::PagedAttentionArgs args, const float* parts,
                                               int64_t chunks, spark::RoundedTarget target) {
  using namespace spark;
  const MergedHead head(args, parts, chunks);
  const int64_t depth = args.shape.depth, first = blockIdx.x % args.shape.heads * depth;
  const Nvfp4Store rows{target.rows, blockIdx.x / args.shape.heads, target.scale};
  for (int64_t e = threadIdx.x; e - threadIdx.x % kWarp < depth; e += blockDim.x) {
    const bool is_there = e < depth;
    const float value = is_there ? head.value(e) : 0;
    if (is_there && args.y) head.store(e, value);
    rows.store(first + e, value, is_there);
  }
  if (target.rows.scales && first == 0) rows.finish(threadIdx.x, blockDim.x);
}
