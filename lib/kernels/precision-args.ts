// precision-args.ts: arguments of casts and quantizers. Contract: native/backend/precision_args.h.
import type { ElementArray } from '../core/dtype.js'
import type { NumericType } from '../graph/constant.js'
import type { PrecisionKernelArgs } from '../precision/kernel-args.js'

/** Element types that kernels compute with; those of less than 8 bits take a byte each, their code in its low bits. */
export type KernelType = Exclude<NumericType, 'c64' | 'c128'>

/** dst = src in another format; see `CastArgs` in native/backend/precision_args.h. */
export interface CastArgs {
  /** Type of `src`. */
  srcDtype: KernelType
  /** Type of `dst`. */
  dstDtype: KernelType
  /** Number of elements. */
  count: number
  /** Whether an f8 or an integer that is out of range becomes the nearest finite value. */
  saturate: boolean
  /** To f8_e8m0; default: up. */
  rounding?: 'up' | 'down' | 'nearest'
  /** Whether dst takes the bits instead of the number; both types are of one size. */
  bits?: boolean
  /** [count] */
  src: ElementArray
  /** Output, [count]. */
  dst: ElementArray
}

/** Arguments of casts between all types, and of quantizers. */
export interface CastKernelArgs extends Omit<PrecisionKernelArgs, 'cast'> {
  /** Another element type. */
  cast: CastArgs
}
