// weight.ts: a frozen weight, its format and its layout.
import type { DTypeArray } from '../core/dtype.js'

/** Formats a frozen weight can be stored in. */
export type WeightFormat = 'f32' | 'f16' | 'bf16' | 'f8_e4m3' | 'nvfp4' | 'i8'

/** A frozen weight [rows, cols], row-major. See `Weight` in native/backend/backend.h for what an element is. */
export interface Weight {
  /** Format of the elements. */
  readonly dtype: WeightFormat
  /** Out features. */
  readonly rows: number
  /** In features; a multiple of 16 for nvfp4. */
  readonly cols: number
  /** f32: Float32Array; f16, bf16: bit patterns; f8_e4m3: codes; nvfp4: packed pairs [rows, cols/2]; i8: Int8Array. */
  readonly data: DTypeArray | Int8Array
  /** [rows], f8_e4m3 and i8 only. */
  readonly rowScale?: Float32Array
  /** E4M3 bytes [rows, cols/16], nvfp4 only. */
  readonly blockScale?: Uint8Array
  /** nvfp4 only. */
  readonly tensorScale?: number
  /** Whether `data` and `blockScale` are in panels of 32 rows, as `packWeight` writes them; not on cuda. */
  readonly packed?: boolean
}
