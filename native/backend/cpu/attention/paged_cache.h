// paged_cache.h: keys or values in blocks, whatever the type of their elements.
#pragma once

#include "backend/paged_args.h"

namespace spark::cpu {

struct PagedCache {
  DType dtype;
  int64_t heads, depth;
  void* data;     // [tokens, heads, depth]
  float* scales;  // [tokens, heads]; null unless i8

  // Where those of f32 lie.
  const float* row(int64_t token, int64_t head) const {
    return static_cast<const float*>(data) + (token * heads + head) * depth;
  }

  // Asks for the memory of a head of a token: heads lie too far apart for the hardware to foresee them.
  void prefetch(int64_t token, int64_t head) const {
    const int64_t bytes = depth * static_cast<int64_t>(dtype_bits(dtype)) / 8;
    const char* from = static_cast<const char*>(data) + (token * heads + head) * bytes;
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
  }

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
