// formats.ts: the formats of frozen weights: their blocks, their scales, and the precision modes that use them.
import type { Precision } from '../core/config.js'
import { blockFormats } from './blocks/formats.js'

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
  /** The kernels that read it: all, those of linear layers and of rows of a table, or none; for others it is decoded. */
  readonly readBy: 'all' | 'linear' | 'none'
}

/** The block formats of GGUF that kernels read, by their names there. */
const storedBlocks = [
  'Q4_0',
  'Q4_1',
  'Q5_0',
  'Q5_1',
  'Q8_0',
  'Q2_K',
  'Q3_K',
  'Q4_K',
  'Q5_K',
  'Q6_K',
  'IQ4_NL',
  'IQ4_XS',
  'MXFP4',
  'IQ1_S',
  'IQ1_M',
  'IQ2_XXS',
  'IQ2_XS',
  'IQ2_S',
  'IQ3_XXS',
  'IQ3_S',
  'TQ1_0',
  'TQ2_0',
] as const

/** Those formats, as weights have them. */
export type GgufWeightFormat = Lowercase<(typeof storedBlocks)[number]>

/**
 * Groups of neighbours of a row with a scale of f32: `u4` and `u8` unsigned integers with a zero point, a byte or, where the
 * name ends with `f`, of f32; `f8` E4M3. Of each two nibbles the low one comes first.
 */
const groups = {
  u4_16: { block: 16, length: 13 },
  u8_16: { block: 16, length: 21 },
  u4_16f: { block: 16, length: 16 },
  u4_32f: { block: 32, length: 24 },
  u8_16f: { block: 16, length: 24 },
  u8_32f: { block: 32, length: 40 },
  u4_32: { block: 32, length: 21 },
  u4_128: { block: 128, length: 69 },
  u8_32: { block: 32, length: 37 },
  u8_128: { block: 128, length: 133 },
  f8_32: { block: 32, length: 36 },
  f8_128: { block: 128, length: 132 },
} as const

/** Those groups. */
export type GroupWeightFormat = keyof typeof groups

/** Formats of weights in blocks whose scales lie between the codes. */
export type BlockWeightFormat = GgufWeightFormat | GroupWeightFormat

const inBlocks = { dtype: 'u8', scales: 'none', readBy: 'linear' } as const

const blockInfo: Readonly<Record<string, FormatInfo>> = {
  ...Object.fromEntries(
    storedBlocks.map(name => {
      const { elements: block, bytes: length } = blockFormats[name]
      return [name.toLowerCase(), { block, length, ...inBlocks }]
    }),
  ),
  ...Object.fromEntries(Object.entries(groups).map(([name, sizes]) => [name, { ...sizes, ...inBlocks }])),
}

/** Whether a format is one of groups, which GGUF has not. */
export const isGroupFormat = (format: BlockWeightFormat): format is GroupWeightFormat =>
  Object.hasOwn(groups, format)

/** The name of a format in GGUF. */
export const ggufName = (format: GgufWeightFormat): Uppercase<GgufWeightFormat> =>
  format.toUpperCase() as Uppercase<GgufWeightFormat>

const scalarFormats = {
  f32: { block: 1, length: 1, dtype: 'f32', scales: 'none', precision: 'fp32', readBy: 'all' },
  f16: { block: 1, length: 1, dtype: 'f16', scales: 'none', precision: 'fp16', readBy: 'all' },
  bf16: { block: 1, length: 1, dtype: 'bf16', scales: 'none', precision: 'bf16', readBy: 'all' },
  f8_e4m3: { block: 1, length: 1, dtype: 'f8_e4m3', scales: 'row', precision: 'fp8', readBy: 'all' },
  f8_e4m3_block: { block: 1, length: 1, dtype: 'f8_e4m3', scales: 'square', readBy: 'none' },
  nvfp4: { block: 16, length: 8, dtype: 'u8', scales: 'block', precision: 'nvfp4', readBy: 'all' },
  i8: { block: 1, length: 1, dtype: 'i8', scales: 'row', readBy: 'all' },
} as const satisfies Readonly<Record<string, FormatInfo>>

/** Formats that a frozen weight can be stored in. */
export type WeightFormat = keyof typeof scalarFormats | BlockWeightFormat

/** All formats by name. */
export const weightFormats = {
  ...scalarFormats,
  ...(blockInfo as Readonly<Record<BlockWeightFormat, FormatInfo>>),
}

const formatsReadBy = (...kernels: FormatInfo['readBy'][]): readonly WeightFormat[] =>
  (Object.keys(weightFormats) as WeightFormat[]).filter(format =>
    kernels.includes(weightFormats[format].readBy),
  )

/** Those that all kernels read. */
export const kernelFormats = formatsReadBy('all')

/** Those that linear layers and gathers of rows read. */
export const linearFormats = formatsReadBy('all', 'linear')

/** Those in blocks. */
export const blockWeightFormats = formatsReadBy('linear') as readonly BlockWeightFormat[]

/** Whether its codes less their zero points are integers, and its blocks fit rows of integers that share scales. */
export const hasIntegerCodes = (format: WeightFormat): boolean =>
  isBlockFormat(format) && !/^f8|^u\d_(16|\d+f)/.test(format)

/** Whether a weight of this format is in blocks. */
export const isBlockFormat = (format: WeightFormat): format is BlockWeightFormat =>
  (blockWeightFormats as readonly WeightFormat[]).includes(format)

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
