// cache-types.ts: element types of the memory of keys and values.

/** An element type of the memory of keys and values; those of `i8` have a scale for each token and head. */
export type CacheType = 'f32' | 'f16' | 'bf16' | 'f8_e4m3' | 'i8'

/** All of them. */
export const cacheTypes: readonly CacheType[] = ['f32', 'f16', 'bf16', 'f8_e4m3', 'i8']
