// blocks.ts: matrices of checkpoints in the block formats that kernels read, with the same codes.
import type { FP8BlockWeight } from '../../precision/fp8.js'
import { blockSizeOf, blocksOfGroups, groupSizes, spreadNibbles } from '../../weights/blocks/groups.js'
import { decodeWeight } from '../../weights/encode.js'
import type { Weight } from '../../weights/weight.js'

/** A matrix of MXFP4, neighbours in one byte, in blocks whose bytes have elements that are 16 apart. */
export function blocksOfMXFP4(rows: number, cols: number, codes: Uint8Array, exponents: Uint8Array): Weight {
  const data = new Uint8Array(17 * exponents.length)
  for (const [block, exponent] of exponents.entries()) {
    const [from, to] = [16 * block, 17 * block]
    data[to] = exponent
    spreadNibbles(codes, from, data, to + 1)
  }
  return { format: 'mxfp4', rows, cols, data }
}

/** FP8 with scales of squares in blocks of its rows; in f32 where rows are not whole blocks. */
function blocksOfFP8(weight: FP8BlockWeight): Weight {
  const { rows, cols, data, scale, blockSize } = weight
  const size = blockSizeOf(blockSize, cols, groupSizes.f8)
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
