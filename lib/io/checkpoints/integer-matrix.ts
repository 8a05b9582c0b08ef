// integer-matrix.ts: matrices of unsigned integers less a zero point, times the scale of a group of in features.
import type { Weight } from '../../weights/weight.js'

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

/** Decodes a matrix to f32, which holds its elements exactly where scales are those of f16 or bf16. */
export function weightOfIntegers({ rows, cols, bits, codes, scales, zeros, groupOf }: IntegerMatrix): Weight {
  const data = new Float32Array(rows * cols)
  const groups = scales.length / rows
  const rowBytes = codes.length / rows
  const group = groupOf ?? Uint32Array.from({ length: cols }, (_, c) => Math.floor((c * groups) / cols))
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const at = r * groups + group[c]!
      data[r * cols + c] = (codeAt(codes, r * rowBytes, c, bits) - zeros[at]!) * scales[at]!
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

/** The first `cols` codes of each of `rows` rows of words, the lowest bits of a word first: [rows, cols]. */
export function unpack(words: Uint32Array, bits: number, rows: number, cols: number): Uint8Array {
  const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength)
  const rowBytes = bytes.length / rows
  const codes = new Uint8Array(rows * cols)
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) codes[r * cols + c] = codeAt(bytes, r * rowBytes, c, bits)
  return codes
}

/** Codes of 4 bits [rows, cols], two to a byte. */
export function bytesOfNibbles(codes: Uint8Array, rows: number, cols: number): Uint8Array {
  const rowBytes = Math.ceil(cols / 2)
  const bytes = new Uint8Array(rows * rowBytes)
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) bytes[r * rowBytes + (c >> 1)]! |= codes[r * cols + c]! << ((c & 1) * 4)
  return bytes
}
