// formats.ts: the tensor types of GGUF: scalars, and blocks of neighbours of a row that share scales.

/** What one has to know about a format to size its bytes. */
interface BlockFormatInfo {
  /** The number that stands for it in a file. */
  readonly id: number
  /** Neighbours of a row that a block holds; the size of a row is a multiple of it. */
  readonly elements: number
  /** Bytes of a block. */
  readonly bytes: number
}

/** Every format by its name in GGUF, by ascending id. Those that were removed from GGUF (4, 5, 31 to 33, 36 to 38) are not. */
export const blockFormats = {
  F32: { id: 0, elements: 1, bytes: 4 },
  F16: { id: 1, elements: 1, bytes: 2 },
  Q4_0: { id: 2, elements: 32, bytes: 18 },
  Q4_1: { id: 3, elements: 32, bytes: 20 },
  Q5_0: { id: 6, elements: 32, bytes: 22 },
  Q5_1: { id: 7, elements: 32, bytes: 24 },
  Q8_0: { id: 8, elements: 32, bytes: 34 },
  Q8_1: { id: 9, elements: 32, bytes: 40 },
  Q2_K: { id: 10, elements: 256, bytes: 84 },
  Q3_K: { id: 11, elements: 256, bytes: 110 },
  Q4_K: { id: 12, elements: 256, bytes: 144 },
  Q5_K: { id: 13, elements: 256, bytes: 176 },
  Q6_K: { id: 14, elements: 256, bytes: 210 },
  Q8_K: { id: 15, elements: 256, bytes: 292 },
  IQ2_XXS: { id: 16, elements: 256, bytes: 66 },
  IQ2_XS: { id: 17, elements: 256, bytes: 74 },
  IQ3_XXS: { id: 18, elements: 256, bytes: 98 },
  IQ1_S: { id: 19, elements: 256, bytes: 50 },
  IQ4_NL: { id: 20, elements: 32, bytes: 18 },
  IQ3_S: { id: 21, elements: 256, bytes: 110 },
  IQ2_S: { id: 22, elements: 256, bytes: 82 },
  IQ4_XS: { id: 23, elements: 256, bytes: 136 },
  I8: { id: 24, elements: 1, bytes: 1 },
  I16: { id: 25, elements: 1, bytes: 2 },
  I32: { id: 26, elements: 1, bytes: 4 },
  I64: { id: 27, elements: 1, bytes: 8 },
  F64: { id: 28, elements: 1, bytes: 8 },
  IQ1_M: { id: 29, elements: 256, bytes: 56 },
  BF16: { id: 30, elements: 1, bytes: 2 },
  TQ1_0: { id: 34, elements: 256, bytes: 54 },
  TQ2_0: { id: 35, elements: 256, bytes: 66 },
  MXFP4: { id: 39, elements: 32, bytes: 17 },
  NVFP4: { id: 40, elements: 64, bytes: 36 },
  Q1_0: { id: 41, elements: 128, bytes: 18 },
  Q2_0: { id: 42, elements: 64, bytes: 18 },
} as const satisfies Readonly<Record<string, BlockFormatInfo>>

/** A tensor type of GGUF by its name there, such as Q4_K. */
export type BlockFormat = keyof typeof blockFormats

/** The names of all formats. */
export const blockFormatNames = Object.keys(blockFormats) as readonly BlockFormat[]

const namesById = new Map<number, BlockFormat>(blockFormatNames.map(name => [blockFormats[name].id, name]))

/** The format with this number; undefined when there is none. */
export const blockFormatOf = (id: number): BlockFormat | undefined => namesById.get(id)

/** Bytes of `count` elements; `count` is a multiple of the elements of a block. */
export function blockBytes(format: BlockFormat, count: number): number {
  const { elements, bytes } = blockFormats[format]
  return (count / elements) * bytes
}
