// integer-matrix.ts: matrices of unsigned integers less a zero point, times the scale of a group of in features.

import { blockSizeOf, blocksOfGroups } from './blocks/groups.js'
import type { Weight } from './weight.js'

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
  readonly zeros: Uint8Array
  /** The group of each in feature; undefined: groups of as many neighbours. */
  readonly groupOf: Uint32Array | undefined
}

/** A matrix in blocks, or in f32 where its groups are not whole blocks. */
export function weightOfIntegers(matrix: IntegerMatrix): Weight {
  const { rows, cols, bits, codes, scales, zeros, groupOf } = matrix
  const groups = scales.length / rows
  const size = groupOf ? undefined : blockSizeOf(cols / groups, cols)
  if (size === undefined) return decoded(matrix)
  const at = (row: number, col: number): number => row * groups + Math.floor((col * groups) / cols)
  const isNarrow = bits < 4
  const bytes = isNarrow ? bytesOfNibbles(unpackBytes(codes, bits, rows, cols), rows, cols) : codes
  return blocksOfGroups(bits === 8 ? `u8_${size}` : `u4_${size}`, rows, cols, {
    scale: (row, col) => scales[at(row, col)]!,
    zero: (row, col) => zeros[at(row, col)]!,
    codes: bytes,
    rowBytes: bytes.length / rows,
  })
}

/** A matrix in f32, which holds its elements exactly where scales are those of f16 or bf16. */
function decoded({ rows, cols, bits, codes, scales, zeros, groupOf }: IntegerMatrix): Weight {
  const data = Float32Array.from(unpackBytes(codes, bits, rows, cols))
  const groups = scales.length / rows
  const group = groupOf ?? Uint32Array.from({ length: cols }, (_, c) => Math.floor((c * groups) / cols))
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const at = r * groups + group[c]!
      data[r * cols + c] = (data[r * cols + c]! - zeros[at]!) * scales[at]!
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
