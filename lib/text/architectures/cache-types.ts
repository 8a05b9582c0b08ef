// cache-types.ts: element types of the memory of keys and values.

/** All of them. */
export const cacheTypes = ['f32', 'f16', 'bf16', 'f8_e4m3'] as const

/** An element type of the memory of keys and values. */
export type CacheType = (typeof cacheTypes)[number]
