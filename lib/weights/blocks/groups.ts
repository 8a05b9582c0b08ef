// groups.ts: matrices whose neighbours in a row share a scale of f32, and a zero point, in the formats of groups.
import { type BlockWeightFormat, formatInfo } from '../formats.js'
import type { BlockWeight } from '../weight.js'

/** How many neighbours in a row are a block, one of `sizes`, where as many share a scale and rows are whole blocks. */
export const blockSizeOf = <Size extends number>(
  sharing: number,
  cols: number,
  sizes: readonly Size[],
): Size | undefined => sizes.find(size => sharing % size === 0 && cols % size === 0)

/** Sizes of blocks of E4M3 and of integers, the largest first, and of integers whose zero points are floats. */
export const groupSizes = { f8: [128, 32], integers: [128, 32, 16], floatZeros: [32, 16] } as const

/** What the groups of a matrix have in front of their codes, and the codes. */
export interface Groups {
  /** Of the group that column `col` of a row is in. */
  scale(row: number, col: number): number
  /** The same; absent in formats without zero points. */
  zero?(row: number, col: number): number
  /** Whether zero points are stored as f32. */
  readonly floatZeros?: boolean
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
  { scale, zero, floatZeros = false, codes, rowBytes }: Groups,
): BlockWeight {
  const { block, length } = formatInfo(format)
  const head = !zero ? 4 : floatZeros ? 8 : 5
  const codeBytes = length - head
  const data = new Uint8Array(((rows * cols) / block) * length)
  const view = new DataView(data.buffer)
  for (let row = 0, at = 0; row < rows; row++) {
    for (let col = 0; col < cols; col += block, at += length) {
      view.setFloat32(at, scale(row, col), true)
      if (zero && floatZeros) view.setFloat32(at + 4, zero(row, col), true)
      else if (zero) data[at + 4] = zero(row, col)
      const from = row * rowBytes + (col / block) * codeBytes
      for (let i = 0; i < codeBytes; i++) data[at + head + i] = codes[from + i]!
    }
  }
  return { format, rows, cols, data }
}

/** Writes 32 codes of 4 bits, neighbours in one byte, so that each byte has two that are 16 apart, as blocks of GGUF have them. */
export function spreadNibbles(codes: Uint8Array, from: number, blocks: Uint8Array, to: number): void {
  for (let i = 0; i < 8; i++) {
    const [low, high] = [codes[from + i]!, codes[from + i + 8]!]
    blocks[to + 2 * i] = (low & 15) | ((high & 15) << 4)
    blocks[to + 2 * i + 1] = (low >> 4) | (high & 0xf0)
  }
}
