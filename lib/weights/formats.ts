// formats.ts: the formats of frozen weights: their blocks, their scales, and the precision modes that use them.
import type { Precision } from '../core/config.js'

/** What one has to know about a format to size its arrays and to choose kernels. */
interface FormatInfo {
  /** Neighbours of a row that are stored together; `cols` is a multiple of it. */
  readonly block: number
  /** Elements of `data` that a block takes. */
  readonly length: number
  /** Element type of `data`. */
  readonly dtype: 'f32' | 'f16' | 'bf16' | 'f8_e4m3' | 'u8' | 'i8'
  /** What shares a scale: nothing, a row, a block of a row, or a square of the matrix. */
  readonly scales: 'none' | 'row' | 'block' | 'square'
  /** The precision mode that stores weights like this. */
  readonly precision?: Precision
  /** Whether kernels read it; what they do not read is decoded. */
  readonly inKernels: boolean
}

/** All formats by name. */
export const weightFormats = {
  f32: { block: 1, length: 1, dtype: 'f32', scales: 'none', precision: 'fp32', inKernels: true },
  f16: { block: 1, length: 1, dtype: 'f16', scales: 'none', precision: 'fp16', inKernels: true },
  bf16: { block: 1, length: 1, dtype: 'bf16', scales: 'none', precision: 'bf16', inKernels: true },
  f8_e4m3: { block: 1, length: 1, dtype: 'f8_e4m3', scales: 'row', precision: 'fp8', inKernels: true },
  f8_e4m3_block: { block: 1, length: 1, dtype: 'f8_e4m3', scales: 'square', inKernels: false },
  nvfp4: { block: 16, length: 8, dtype: 'u8', scales: 'block', precision: 'nvfp4', inKernels: true },
  i8: { block: 1, length: 1, dtype: 'i8', scales: 'row', inKernels: true },
} as const satisfies Readonly<Record<string, FormatInfo>>

/** Formats that a frozen weight can be stored in. */
export type WeightFormat = keyof typeof weightFormats

/** Those that kernels read. */
export const kernelFormats = (Object.keys(weightFormats) as WeightFormat[]).filter(
  format => weightFormats[format].inKernels,
)

/** What a format is made of. */
export const formatInfo = (format: WeightFormat): FormatInfo => weightFormats[format]

/** Elements of the arrays of a weight in rows; 0 for those that its format has not. */
export interface WeightSizes {
  readonly data: number
  readonly rowScale: number
  readonly blockScale: number
}

/** Elements of the arrays of a weight of `rows` rows; a part of a block counts as a whole one. */
export function weightSizes(format: WeightFormat, rows: number, cols: number): WeightSizes {
  const { block, length, scales } = formatInfo(format)
  const blocks = rows * Math.ceil(cols / block)
  return {
    data: blocks * length,
    rowScale: scales === 'row' ? rows : 0,
    blockScale: scales === 'block' ? blocks : 0,
  }
}
