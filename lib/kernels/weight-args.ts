// weight-args.ts: a frozen weight as kernels take it, and arguments of its layouts. Contract: native/backend/weight.h.
import type { Weight } from '../weights/weight.js'

export type { Weight, WeightFormat } from '../weights/weight.js'

/** Precision that operands are rounded to before they are multiplied; see `Compute` in native/backend/weight.h. */
export type Compute = 'f32' | 'bf16' | 'f16' | 'nvfp4' | 'i8'

/** The same where there is no product of codes. */
export type FloatCompute = Exclude<Compute, 'nvfp4' | 'i8'>

/** A weight in panels of 32 rows; see `PackWeightArgs` in native/backend/weight.h. */
export interface PackWeightArgs {
  /** In rows. */
  weight: Weight
  /** The elements of `weight` are there column by column, f32 only. Default: false. */
  transposed?: boolean
  /** Output, as long as `panelSizes` says, of the type of `weight.data`. */
  data: Weight['data']
  /** Output, nvfp4 only. */
  blockScale?: Uint8Array | undefined
}

/** Filters of 3 x 3 for Winograd's algorithm; see `WinogradWeightArgs` in native/backend/weight.h. */
export interface WinogradWeightArgs {
  /** [O, C · 9] */
  weight: Weight
  /** Output, 36 packed matrices [O, C]. */
  data: Float32Array
}

/** Arguments of the operations on weights. */
export interface WeightKernelArgs {
  /** A weight in the layout that the CPU streams. */
  packWeight: PackWeightArgs
  /** Filters of 3 x 3 as the CPU convolves with them in tiles. */
  winogradWeight: WinogradWeightArgs
}
