// paged_cache.h: keys or values in blocks, whatever the type of their elements.
#pragma once

#include "backend/paged_args.h"

namespace spark::cpu {

struct PagedCache {
  DType dtype;
  int64_t heads, depth;
  void* data;     // [tokens, heads, depth]
  float* scales;  // [tokens, heads]; null unless i8

  // The elements of a head of a token.
  void store(int64_t token, int64_t head, const float* from) const;
  void load(int64_t token, int64_t head, float* to) const;
};

inline PagedCache key_cache(const PagedAttentionArgs& args) {
  return {args.cache_dtype, args.shape.kv_heads, args.shape.depth, args.key_cache, args.key_scales};
}

inline PagedCache value_cache(const PagedAttentionArgs& args) {
  return {args.cache_dtype, args.shape.kv_heads, args.shape.depth, args.value_cache, args.value_scales};
}

}  // namespace spark::cpu
