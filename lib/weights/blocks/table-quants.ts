// table-quants.ts: blocks whose codes are indices of a table of 16 numbers (IQ4, MXFP4, NVFP4), and ternary blocks (TQ).
import { readHalf } from './halves.js'
import type { BlockDecoder } from './legacy-quants.js'

const { fround } = Math

/** Numbers of the codes of IQ4_NL and IQ4_XS. */
const levels = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

/** Twice the numbers of the codes of E2M1; there is no negative zero. */
const e2m1Doubled = Int8Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

/** Writes 2 · `half` elements: the low nibbles of as many bytes, then the high ones. */
function writeNibbles(
  table: Int8Array,
  scale: number,
  half: number,
  bytes: Uint8Array,
  at: number,
  out: Float32Array,
  to: number,
): void {
  for (let j = 0; j < half; j++) {
    const pair = bytes[at + j]!
    out[to + j] = scale * table[pair & 15]!
    out[to + j + half] = scale * table[pair >> 4]!
  }
}

/** d, 16 bytes of nibbles. */
export const decodeIQ4_NL: BlockDecoder = (bytes, at, out, to) =>
  writeNibbles(levels, readHalf(bytes, at), 16, bytes, at + 2, out, to)

/** d, 2 bytes of high bits and 4 bytes of low nibbles of 8 scales less 32, 128 bytes of nibbles. */
export const decodeIQ4_XS: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  for (let run = 0; run < 8; run++) {
    const low = (bytes[at + 4 + (run >> 1)]! >> ((run & 1) * 4)) & 15
    const high = (bytes[at + 2 + (run >> 2)]! >> ((run & 3) * 2)) & 3
    const scale = fround(d * ((low | (high << 4)) - 32))
    writeNibbles(levels, scale, 16, bytes, at + 8 + run * 16, out, to + run * 32)
  }
}

/** A power of two with a bias of 127, halved for the doubled numbers; 16 bytes of nibbles. */
export const decodeMXFP4: BlockDecoder = (bytes, at, out, to) =>
  writeNibbles(e2m1Doubled, 2 ** (bytes[at]! - 128), 16, bytes, at + 1, out, to)

/** Half of the number of an unsigned E4M3 code; its NaN is 0. */
function halvedE4M3(code: number): number {
  if (code === 0x7f) return 0
  const exponent = (code >> 3) & 15
  return exponent === 0 ? (code & 7) * 2 ** -10 : (8 + (code & 7)) * 2 ** (exponent - 11)
}

/** 4 scales in unsigned E4M3, each for 16 elements in 8 bytes of nibbles. */
export const decodeNVFP4: BlockDecoder = (bytes, at, out, to) => {
  for (let run = 0; run < 4; run++) {
    const scale = halvedE4M3(bytes[at + run]!)
    writeNibbles(e2m1Doubled, scale, 8, bytes, at + 4 + run * 8, out, to + run * 16)
  }
}

/**
 * Writes digits of numbers of base 3 less 1, digit by digit: a byte is the number, as a fraction, of 256. Multiplying by
 * a power of 3 modulo 256 moves a digit to the front.
 */
function writeTernary(
  d: number,
  count: number,
  digits: number,
  bytes: Uint8Array,
  at: number,
  out: Float32Array,
  to: number,
): void {
  for (let digit = 0, power = 1; digit < digits; digit++, power *= 3)
    for (let j = 0; j < count; j++) {
      const fraction = (bytes[at + j]! * power) & 0xff
      out[to + digit * count + j] = d * (((fraction * 3) >> 8) - 1)
    }
}

/** 32 and 16 bytes of 5 ternary digits, 4 bytes of 4, d. */
export const decodeTQ1_0: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at + 52)
  writeTernary(d, 32, 5, bytes, at, out, to)
  writeTernary(d, 16, 5, bytes, at + 32, out, to + 160)
  writeTernary(d, 4, 4, bytes, at + 48, out, to + 240)
}

/** 64 bytes of 2 bits, d; of each 32 bytes four shifts. */
export const decodeTQ2_0: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at + 64)
  for (let run = 0; run < 8; run++) {
    const from = at + (run >> 2) * 32
    const shift = (run & 3) * 2
    for (let j = 0; j < 32; j++) out[to + run * 32 + j] = d * (((bytes[from + j]! >> shift) & 3) - 1)
  }
}
