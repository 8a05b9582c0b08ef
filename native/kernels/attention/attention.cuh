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

// kRows of the queries that meet one head of keys: those of all its heads lie behind each other.
template <int kRows>
struct Queries {
  const AttentionArgs& args;
  int64_t batch, kv_head, first;

  __device__ Queries(const AttentionArgs& args, int64_t tiles, int64_t block)
      : args(args),
        batch(block / tiles / args.shape.kv_heads),
        kv_head(block / tiles % args.shape.kv_heads),
        first(block % tiles * kRows) {}
  __device__ int64_t count() const { return args.shape.heads / args.shape.kv_heads * args.shape.queries; }
  __device__ bool has(int row) const { return first + row < count(); }
  __device__ int64_t head(int row) const {
    return kv_head * (args.shape.heads / args.shape.kv_heads) + (first + row) / args.shape.queries;
  }
  __device__ int64_t query(int row) const { return (first + row) % args.shape.queries; }
  __device__ int64_t index(int row) const {
    return (batch * args.shape.heads + head(row)) * args.shape.queries + query(row);
  }
  // Keys that causality lets any of the rows see.
  __device__ int64_t seen() const { return seen(first, min(first + kRows, count())); }
  // The same of the rows [begin, end) of the head.
  __device__ int64_t seen(int64_t begin, int64_t end) const {
    if (!args.causal) return args.shape.keys;
    const int64_t last = end - 1, queries = args.shape.queries;
    const int64_t latest = begin / queries == last / queries ? last % queries : queries - 1;
    return min(args.shape.keys, latest + args.causal_offset + 1);
  }
  __device__ const float* row_of(const float* data, const HeadStrides& strides, int row) const {
    return has(row) ? head_of(data, strides, batch, head(row)) + query(row) * strides.step : nullptr;
  }
};

}  // namespace
}  // namespace spark
