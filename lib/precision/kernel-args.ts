import type { DType, DTypeArray } from '../core/dtype.js'

/** dst = src in another format, rounded to nearest even. */
export interface FloatCastArgs {
  /** Format of `src`. */
  srcDtype: DType
  /** Format of `dst`. */
  dstDtype: DType
  /** Number of elements. */
  count: number
  /** Whether an f8 that is out of range becomes the largest finite value. */
  saturate: boolean
  /** Elements, 16-bit and 8-bit floats as bit patterns. */
  src: DTypeArray
  /** Output. */
  dst: DTypeArray
}

/** out = max |src|, NaN when any element is. */
export interface AmaxArgs {
  /** f32, f16 or bf16. */
  dtype: DType
  /** Number of elements. */
  count: number
  /** Elements. */
  src: DTypeArray
  /** Output, [1]. */
  out: Float32Array
}

/** How NVFP4 scales are chosen (docs/numerics.md): as NVIDIA's ModelOpt or TransformerEngine do, or by least squared error. */
export type NVFP4Recipe = 'modelopt' | 'te' | 'mse'

/** NVFP4 by a recipe of docs/numerics.md. */
export interface Nvfp4QuantizeArgs {
  /** f32, f16 or bf16. */
  srcDtype: DType
  /** Rows of `src`. */
  rows: number
  /** Columns of `src`, a multiple of 16. */
  cols: number
  /** Default: 'modelopt'. */
  recipe?: NVFP4Recipe
  /** amax / 2688 */
  tensorScale: number
  /** 2688 / amax: recipe 'te' needs it and uses it in place of `tensorScale`. */
  encodeScale?: number
  /** [rows, cols], finite. */
  src: DTypeArray
  /** Output, [rows, cols/2]: two E2M1 codes a byte, the even column in the low half. */
  packed: Uint8Array
  /** Output, [rows, cols/16]: E4M3. */
  blockScale: Uint8Array
}

/** dst = e2m1 · (e4m3 · tensorScale) */
export interface Nvfp4DequantizeArgs {
  /** Rows of `dst`. */
  rows: number
  /** Columns of `dst`, a multiple of 16. */
  cols: number
  /** Multiplier of all block scales. */
  tensorScale: number
  /** [rows, cols/2] */
  packed: Uint8Array
  /** [rows, cols/16] */
  blockScale: Uint8Array
  /** Output, [rows, cols]. */
  dst: Float32Array
}

/** E4M3 with a scale per block, smaller at the edges: scale = amax of the block / 448, codes = src / scale. */
export interface Fp8QuantizeArgs {
  /** f32, f16 or bf16. */
  srcDtype: DType
  /** Rows of `src`. */
  rows: number
  /** Columns of `src`. */
  cols: number
  /** Rows of a block, at least 1. */
  blockRows: number
  /** Columns of a block, at least 1. */
  blockCols: number
  /** [rows, cols], finite. */
  src: DTypeArray
  /** Output, [rows, cols]. */
  codes: Uint8Array
  /** Output, [ceil(rows / blockRows), ceil(cols / blockCols)]. */
  scale: Float32Array
}

/** Block scales between rows and the tiles of cuBLASLt's block-scaled products. */
export interface SwizzleScalesArgs {
  /** Rows of scales. */
  rows: number
  /** Scales of a row. */
  cols: number
  /** From tiles to rows. */
  inverse: boolean
  /** [rows, cols]; tiles when inverse. */
  src: Uint8Array
  /** Output, [ceil(rows / 128), ceil(cols / 4), 512]; rows when inverse. */
  dst: Uint8Array
}

/** Arguments of the casts and quantizers, part of `KernelArgs`. */
export interface PrecisionKernelArgs {
  /** A change of format. */
  cast: FloatCastArgs
  /** The largest magnitude. */
  amax: AmaxArgs
  /** To NVFP4. */
  nvfp4Quantize: Nvfp4QuantizeArgs
  /** From NVFP4. */
  nvfp4Dequantize: Nvfp4DequantizeArgs
  /** To FP8. */
  fp8Quantize: Fp8QuantizeArgs
  /** The order of block scales. */
  swizzleScales: SwizzleScalesArgs
}
