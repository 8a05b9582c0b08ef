// weight.ts: a frozen weight: its format, its layout, and the owner of its memory.
import type { FP8BlockWeight, FP8Weight } from '../precision/fp8.js'
import type { NVFP4Weight } from '../precision/nvfp4.js'
import type { BlockWeightFormat } from './formats.js'

export type { WeightFormat } from './formats.js'

/** Order of the elements of a weight: row-major, or panels of 32 rows as `packWeight` writes them. */
export type WeightLayout = 'rows' | 'panels'

/** Where the arrays of a weight are. */
export interface WeightMemory {
  /** Order of the elements. Default: rows. Only the CPU reads panels. */
  readonly layout?: WeightLayout
  /** What frees the arrays where the garbage collector does not: those in the memory of a GPU. */
  readonly owner?: Disposable
}

/** A weight [rows, cols] of floats. */
export interface FloatWeight {
  /** Name of the format. */
  readonly format: 'f32' | 'f16' | 'bf16'
  /** Number of rows. */
  readonly rows: number
  /** Number of columns. */
  readonly cols: number
  /** A Float32Array, or the bit patterns of f16 and bf16, [rows, cols]. */
  readonly data: Float32Array | Uint16Array
}

/** A weight [rows, cols] of integers with a scale per row. Element (r, c) is `data[r, c] · rowScale[r]`. */
export interface Int8Weight {
  /** Name of the format. */
  readonly format: 'i8'
  /** Number of rows. */
  readonly rows: number
  /** Number of columns. */
  readonly cols: number
  /** [rows, cols]. */
  readonly data: Int8Array
  /** Multiplier of each row, [rows]. */
  readonly rowScale: Float32Array
}

/** A weight [rows, cols] in blocks, each of neighbours of a row and their scales. */
export interface BlockWeight {
  /** Name of the format: that of GGUF in lower case, or of integers or E4M3 in groups. */
  readonly format: BlockWeightFormat
  /** Number of rows. */
  readonly rows: number
  /** Number of columns, a multiple of the elements of a block. */
  readonly cols: number
  /** The blocks, row by row. */
  readonly data: Uint8Array
}

/** A frozen weight, out features by in features, in any format, layout and memory: what products read. */
export type Weight = (FloatWeight | Int8Weight | FP8Weight | FP8BlockWeight | NVFP4Weight | BlockWeight) &
  WeightMemory

/** The arrays of a weight, scales included, by their names. */
export const arraysOf = (weight: Weight): [name: string, array: Float32Array | Uint8Array][] =>
  Object.entries(weight).filter(([, value]) => ArrayBuffer.isView(value))

/** Frees the memory of a weight that somebody owns. A second call is a no-op. */
export function releaseWeight({ owner }: WeightMemory): void {
  owner?.[Symbol.dispose]()
}
