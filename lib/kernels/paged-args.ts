// paged-args.ts: arguments of attention over blocks of keys and values. Contract: native/backend/paged_args.h.
import type { TypedArrayOf } from '../core/dtype.js'
import type { ActivationDType, Activations } from './linear-args.js'
import type { FloatCompute } from './weight-args.js'

/** Element types of keys and values in blocks. */
export const pagedCacheTypes = ['f32', 'f16', 'bf16', 'f8_e4m3', 'i8'] as const

/** Element type of keys and values in blocks. */
export type PagedCacheType = (typeof pagedCacheTypes)[number]

/**
 * Attention of rows of several sequences, whose keys and values lie in blocks; see `PagedAttentionArgs` in
 * native/backend/paged_args.h.
 */
export interface PagedAttentionArgs {
  /** N: rows of all sequences. */
  tokens: number
  /** B */
  sequences: number
  /** H, a multiple of `kvHeads`. */
  heads: number
  /** K: heads of keys and values. */
  kvHeads: number
  /** D: length of a head, at least 1. */
  depth: number
  /** R: elements of a head that are rotated, even, `depth` at most; 0: none. */
  rotary: number
  /** Blocks of the caches. */
  blocks: number
  /** Tokens of a block, at least 1. */
  blockSize: number
  /** T: blocks of a sequence at most. */
  table: number
  /** Factor of the products. */
  scale: number
  /** Scores become softcap · tanh(score / softcap); 0 or absent: they stay. */
  softcap?: number | undefined
  /** Added to the mean square of normalized heads; absent: 0. */
  epsilon?: number | undefined
  /** Positions that a row sees, its own included; 0 or absent: all up to its own. */
  window?: number | undefined
  /** Whether elements 2i and 2i + 1 are rotated together, not i and i + R / 2. */
  interleaved?: boolean | undefined
  /** [N, H · D] */
  query: Float32Array
  /** [N, K · D] */
  key: Float32Array
  /** [N, K · D] */
  value: Float32Array
  /** [D]; queries are normalized and scaled; absent: not. */
  queryNorm?: Float32Array | undefined
  /** [D]; keys are normalized and scaled; absent: not. */
  keyNorm?: Float32Array | undefined
  /** [N, R / 2]; absent where R is 0. */
  cos?: Float32Array | undefined
  /** [N, R / 2]; absent where R is 0. */
  sin?: Float32Array | undefined
  /** [H]; a score more in the sum of the weights of each head; absent: none. */
  sinks?: Float32Array | undefined
  /** [B + 1]; the first row of each sequence, and the end of the last one; ascending, from 0 to N. */
  starts: Int32Array
  /** [B]; positions of each sequence that the caches have already. */
  past: Int32Array
  /** [B, T]; the blocks of each sequence; what no row sees may be anything. */
  block: Int32Array
  /** [N]; where each row is written, block · blockSize + offset, or −1 for padding; absent: as `block` says. */
  slots?: Int32Array | undefined
  /** Of the caches; default: f32. */
  cacheDtype?: PagedCacheType | undefined
  /** [blocks, blockSize, K, D], updated. */
  keyCache: TypedArrayOf<PagedCacheType>
  /** [blocks, blockSize, K, D], updated. */
  valueCache: TypedArrayOf<PagedCacheType>
  /** [blocks, blockSize, K], updated: factors of the codes of i8; absent otherwise. */
  keyScales?: Float32Array | undefined
  /** [blocks, blockSize, K], updated: factors of the codes of i8; absent otherwise. */
  valueScales?: Float32Array | undefined
  /** Output, [N, H · D]; 0 in rows of padding. May be absent beside `yRounded`. */
  y?: Activations | undefined
  /** Of `y`. Default: f32. */
  yDtype?: ActivationDType | undefined
  /** Output on CUDA, [N, H · D]: y of f32 as rounded rows with `yScale`, which is there, as in `LinearArgs`. */
  yRounded?: Uint16Array | undefined
  /** Tensor scale of `yRounded`, a power of two. */
  yScale?: number | undefined
  /** A GPU rounds its operands to bf16 or f16 where a call has many rows; other backends compute in f32. Default: f32. */
  compute?: FloatCompute | undefined
}

/** Arguments of attention over blocks. */
export interface PagedKernelArgs {
  /** Attention over blocks of keys and values. */
  pagedAttention: PagedAttentionArgs
}
