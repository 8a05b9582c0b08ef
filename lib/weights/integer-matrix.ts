// integer-matrix.ts: matrices of unsigned integers less a zero point, times the scale of a group of in features.

import { decode, encode } from '../precision/casts.js'
import { blockSizeOf, blocksOfGroups, groupSizes, spreadNibbles } from './blocks/groups.js'
import { writeHalf } from './blocks/halves.js'
import { formatInfo } from './formats.js'
import type { OrderedWeight } from './ordered-weight.js'
import type { BlockWeight, Weight } from './weight.js'

/** A matrix [rows, cols]. Element (r, c) of group g is (code − zeros[r, g]) · scales[r, g]. */
export interface IntegerMatrix {
  readonly rows: number
  readonly cols: number
  /** Bits of a code, at most 8. */
  readonly bits: number
  /** Codes row by row, the lowest bits of a byte first; a row begins with a byte of its own, and more may follow its last one. */
  readonly codes: Uint8Array
  /** [rows, groups]. */
  readonly scales: Float32Array
  /** [rows, groups]. */
  readonly zeros: Uint8Array | Float32Array
}

/**
 * Blocks of 32 whose zero points are all in the middle and whose scales are numbers of f16 as those of Q4_0 and Q8_0, which
 * take less memory; undefined for others.
 */
function symmetricBlocks(matrix: IntegerMatrix, codes: Uint8Array): BlockWeight | undefined {
  const { rows, cols, bits, scales, zeros } = matrix
  const isNarrow = bits < 8
  const isMiddle = zeros.every(zero => zero === (isNarrow ? 8 : 128))
  if (!isMiddle || !decode(encode(scales, 'f16'), 'f16').every((scale, i) => scale === scales[i]))
    return undefined
  const format = isNarrow ? 'q4_0' : 'q8_0'
  const { length } = formatInfo(format)
  const data = new Uint8Array(((rows * cols) / 32) * length)
  const [perRow, groups, rowBytes] = [cols / 32, scales.length / rows, codes.length / rows]
  for (let i = 0, to = 0; to < data.length; i++, to += length) {
    const [row, block] = [Math.floor(i / perRow), i % perRow]
    const from = row * rowBytes + block * (length - 2)
    writeHalf(data, to, scales[row * groups + Math.floor((block * groups) / perRow)]!)
    if (isNarrow) spreadNibbles(codes, from, data, to + 2)
    else for (let j = 0; j < 32; j++) data[to + 2 + j] = codes[from + j]! ^ 128
  }
  return { format, rows, cols, data }
}

/** A matrix in blocks, or in f32 where its groups are not whole blocks. */
export function weightOfIntegers(matrix: IntegerMatrix): Weight {
  return inBlocks(matrix) ?? decoded(matrix)
}

/**
 * A matrix of groups of any in features: with its columns group by group, or in f32 where groups are not whole blocks.
 * @param groupOf - the group of each in feature
 */
export function weightOfGroups(matrix: IntegerMatrix, groupOf: ArrayLike<number>): Weight | OrderedWeight {
  const { rows, cols, bits, codes, scales } = matrix
  const size = cols / (scales.length / rows)
  const order = Int32Array.from({ length: cols }, (_, col) => col).sort(
    (a, b) => groupOf[a]! - groupOf[b]! || a - b,
  )
  if (!order.every((feature, col) => groupOf[feature] === Math.floor(col / size)))
    return decoded(matrix, groupOf)
  const bytes = unpackBytes(codes, bits, rows, cols)
  const sorted = new Uint8Array(bytes.length)
  for (let row = 0; row < bytes.length; row += cols)
    for (let col = 0; col < cols; col++) sorted[row + col] = bytes[row + order[col]!]!
  const isByte = bits === 8
  const packed = isByte ? sorted : bytesOfNibbles(sorted, rows, cols)
  const weight = inBlocks({ ...matrix, bits: isByte ? 8 : 4, codes: packed })
  return weight ? { weight, order } : decoded(matrix, groupOf)
}

/** A matrix in blocks; undefined where its groups are not whole ones. */
function inBlocks(matrix: IntegerMatrix): BlockWeight | undefined {
  const { rows, cols, bits, codes, scales, zeros } = matrix
  const groups = scales.length / rows
  const floatZeros = zeros instanceof Float32Array
  const sizes = floatZeros ? groupSizes.floatZeros : groupSizes.integers
  const size = blockSizeOf<16 | 32 | 128>(cols / groups, cols, sizes)
  if (size === undefined) return undefined
  const at = (row: number, col: number): number => row * groups + Math.floor((col * groups) / cols)
  const isNarrow = bits < 4
  const bytes = isNarrow ? bytesOfNibbles(unpackBytes(codes, bits, rows, cols), rows, cols) : codes
  const symmetric = size === 32 ? symmetricBlocks(matrix, bytes) : undefined
  if (symmetric) return symmetric
  const width = bits === 8 ? 8 : 4
  const format = floatZeros ? (`u${width}_${size as 16 | 32}f` as const) : (`u${width}_${size}` as const)
  return blocksOfGroups(format, rows, cols, {
    floatZeros,
    scale: (row, col) => scales[at(row, col)]!,
    zero: (row, col) => zeros[at(row, col)]!,
    codes: bytes,
    rowBytes: bytes.length / rows,
  })
}

/** A matrix in f32, which holds its elements exactly where scales are those of f16 or bf16. */
function decoded(
  { rows, cols, bits, codes, scales, zeros }: IntegerMatrix,
  groupOf?: ArrayLike<number>,
): Weight {
  const data = Float32Array.from(unpackBytes(codes, bits, rows, cols))
  const groups = scales.length / rows
  const group = groupOf ?? Uint32Array.from({ length: cols }, (_, c) => Math.floor((c * groups) / cols))
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const at = r * groups + group[c]!
      data[r * cols + c] = Math.fround(data[r * cols + c]! - zeros[at]!) * scales[at]!
    }
  }
  return { format: 'f32', rows, cols, data }
}

/** Code `i` of a stream of bits that begins with a byte. */
function codeAt(bytes: Uint8Array, begin: number, i: number, bits: number): number {
  const first = i * bits
  const at = begin + (first >> 3)
  const pair = bytes[at]! | ((bytes[at + 1] ?? 0) << 8)
  return (pair >> (first & 7)) & ((1 << bits) - 1)
}

/** The first `cols` codes of each of `rows` rows of bytes, the lowest bits first: [rows, cols]. */
export function unpackBytes(bytes: Uint8Array, bits: number, rows: number, cols: number): Uint8Array {
  const rowBytes = bytes.length / rows
  const codes = new Uint8Array(rows * cols)
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) codes[r * cols + c] = codeAt(bytes, r * rowBytes, c, bits)
  return codes
}

/** The same of rows of words. */
export const unpack = (words: Uint32Array, bits: number, rows: number, cols: number): Uint8Array =>
  unpackBytes(new Uint8Array(words.buffer, words.byteOffset, words.byteLength), bits, rows, cols)

/** Codes of 4 bits [rows, cols], two to a byte. */
export function bytesOfNibbles(codes: Uint8Array, rows: number, cols: number): Uint8Array {
  const rowBytes = Math.ceil(cols / 2)
  const bytes = new Uint8Array(rows * rowBytes)
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) bytes[r * rowBytes + (c >> 1)]! |= codes[r * cols + c]! << ((c & 1) * 4)
  return bytes
}
