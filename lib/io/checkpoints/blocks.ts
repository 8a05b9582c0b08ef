// blocks.ts: matrices of checkpoints in the block formats that kernels read, with the same codes.
import type { FP8BlockWeight } from '../../precision/fp8.js'
import { decodeWeight } from '../../weights/encode.js'
import { type BlockWeightFormat, formatInfo } from '../../weights/formats.js'
import type { Weight } from '../../weights/weight.js'

/** A matrix of MXFP4, neighbours in one byte, in blocks whose bytes have elements that are 16 apart. */
export function blocksOfMXFP4(rows: number, cols: number, codes: Uint8Array, exponents: Uint8Array): Weight {
  const data = new Uint8Array(17 * exponents.length)
  for (const [block, exponent] of exponents.entries()) {
    const [from, to] = [16 * block, 17 * block]
    data[to] = exponent
    for (let i = 0; i < 8; i++) {
      const [low, high] = [codes[from + i]!, codes[from + i + 8]!]
      data[to + 1 + 2 * i] = (low & 15) | ((high & 15) << 4)
      data[to + 2 + 2 * i] = (low >> 4) | (high & 0xf0)
    }
  }
  return { format: 'mxfp4', rows, cols, data }
}

/** How many neighbours in a row are a block, where as many share a scale and rows are whole blocks. */
export const blockSizeOf = (sharing: number, cols: number): 32 | 128 | undefined =>
  ([128, 32] as const).find(size => sharing % size === 0 && cols % size === 0)

/** What the groups of a matrix have in front of their codes, and the codes. */
export interface Groups {
  /** Of the group that column `col` of a row is in. */
  scale(row: number, col: number): number
  /** The same; absent in formats without zero points. */
  zero?(row: number, col: number): number
  /** All codes, row by row. */
  readonly codes: Uint8Array
  /** Bytes from the codes of a row to those of the next. */
  readonly rowBytes: number
}

/** A matrix in blocks of a scale of f32, a zero point where there are any, and codes. */
export function blocksOfGroups(
  format: BlockWeightFormat,
  rows: number,
  cols: number,
  { scale, zero, codes, rowBytes }: Groups,
): Weight {
  const { block, length } = formatInfo(format)
  const head = zero ? 5 : 4
  const codeBytes = length - head
  const data = new Uint8Array(((rows * cols) / block) * length)
  const view = new DataView(data.buffer)
  for (let row = 0, at = 0; row < rows; row++) {
    for (let col = 0; col < cols; col += block, at += length) {
      view.setFloat32(at, scale(row, col), true)
      if (zero) data[at + 4] = zero(row, col)
      const from = row * rowBytes + (col / block) * codeBytes
      data.set(codes.subarray(from, from + codeBytes), at + head)
    }
  }
  return { format, rows, cols, data }
}

/** FP8 with scales of squares in blocks of its rows; in f32 where rows are not whole blocks. */
function blocksOfFP8(weight: FP8BlockWeight): Weight {
  const { rows, cols, data, scale, blockSize } = weight
  const size = blockSizeOf(blockSize, cols)
  if (size === undefined) return { format: 'f32', rows, cols, data: decodeWeight(weight) }
  const across = Math.ceil(cols / blockSize)
  return blocksOfGroups(`f8_${size}`, rows, cols, {
    codes: data,
    rowBytes: cols,
    scale: (row, col) => scale[Math.floor(row / blockSize) * across + Math.floor(col / blockSize)]!,
  })
}

/** A weight that kernels read. */
export const readable = (weight: Weight): Weight =>
  weight.format === 'f8_e4m3_block' ? blocksOfFP8(weight) : weight
