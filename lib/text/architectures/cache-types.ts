// cache-types.ts: element types of the memory of keys and values.

/** An element type of the memory of keys and values. */
export type CacheType = 'f32' | 'f16' | 'bf16' | 'f8_e4m3'

/** All of them. */
export const cacheTypes: readonly CacheType[] = ['f32', 'f16', 'bf16', 'f8_e4m3']
