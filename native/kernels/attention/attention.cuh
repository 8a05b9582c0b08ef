// attention.cuh: shared code of the attention kernels: the queries of a block, and scores from products.
#pragma once

#include "backend/network_args.h"

namespace spark {
namespace {

__device__ const float* head_of(const float* data, const HeadStrides& strides, int64_t batch, int64_t head) {
  return data + batch * strides.batch + head * strides.head;
}

// A score without its mask, and its derivative by the product.
struct Score {
  float value, slope;
};

__device__ Score unmasked_score(const AttentionArgs& args, float dot) {
  const float value = dot * args.scale;
  if (args.softcap == 0) return {value, 1};
  const float capped = tanhf(value / args.softcap);
  return {args.softcap * capped, 1 - capped * capped};
}

// kRows of the queries that meet one head of keys: those of all its heads lie behind each other. Size counts
// them: in 32 bits divisions are no calls, and launchers refuse larger sizes.
template <int kRows, typename Size = int64_t>
struct Queries {
  const AttentionArgs& args;
  Size batch, kv_head, first;

  __device__ Queries(const AttentionArgs& args, Size tiles, Size block)
      : args(args),
        batch(block / tiles / static_cast<Size>(args.shape.kv_heads)),
        kv_head(block / tiles % static_cast<Size>(args.shape.kv_heads)),
        first(block % tiles * kRows) {}
  __device__ Size queries() const { return static_cast<Size>(args.shape.queries); }
  __device__ Size heads() const {
    return static_cast<Size>(args.shape.heads) / static_cast<Size>(args.shape.kv_heads);
  }
  __device__ Size count() const { return heads() * queries(); }
  __device__ bool has(int row) const { return first + row < count(); }
  __device__ Size head(int row) const { return kv_head * heads() + (first + row) / queries(); }
  __device__ Size query(int row) const { return (first + row) % queries(); }
  __device__ int64_t index(int row) const {
    return (batch * args.shape.heads + head(row)) * args.shape.queries + query(row);
  }
  // Keys that causality lets any of the rows see.
  __device__ int64_t seen() const { return seen(first, min(first + kRows, count())); }
  // The same of the rows [begin, end) of the head.
  __device__ int64_t seen(Size begin, Size end) const {
    if (!args.causal) return args.shape.keys;
    const Size last = end - 1;
    const int64_t latest = begin / queries() == last / queries() ? last % queries() : queries() - 1;
    return min(args.shape.keys, latest + args.causal_offset + 1);
  }
  __device__ int64_t offset_of(const HeadStrides& strides, int row) const {
    return batch * strides.batch + head(row) * strides.head + query(row) * strides.step;
  }
  __device__ const float* row_of(const float* data, const HeadStrides& strides, int row) const {
    return has(row) ? data + offset_of(strides, row) : nullptr;
  }
};

}  // namespace
}  // namespace spark
