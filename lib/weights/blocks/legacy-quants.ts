// legacy-quants.ts: blocks of 32 elements with one f16 scale d, and a minimum m where the name ends in 1.
// Value: d · (q − offset), or d · q + m. Byte j of the nibbles holds element j (low) and element j + 16 (high).
import { readHalf } from './halves.js'

/**
 * Writes the numbers of one block to `out` from `to` on. Each operation rounds to f32, as the formulas of GGUF do.
 * @param at - where the block begins in `bytes`
 */
export type BlockDecoder = (bytes: Uint8Array, at: number, out: Float32Array, to: number) => void

const { fround } = Math

/** Bit j of the four bytes from `at` on, as 16. */
const fifthBit = (bytes: Uint8Array, at: number, j: number): number =>
  ((bytes[at + (j >> 3)]! >> (j & 7)) & 1) << 4

export const decodeQ4_0: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  for (let j = 0; j < 16; j++) {
    const pair = bytes[at + 2 + j]!
    out[to + j] = d * ((pair & 15) - 8)
    out[to + j + 16] = d * ((pair >> 4) - 8)
  }
}

export const decodeQ4_1: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const m = readHalf(bytes, at + 2)
  for (let j = 0; j < 16; j++) {
    const pair = bytes[at + 4 + j]!
    out[to + j] = fround(d * (pair & 15)) + m
    out[to + j + 16] = fround(d * (pair >> 4)) + m
  }
}

export const decodeQ5_0: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  for (let j = 0; j < 16; j++) {
    const pair = bytes[at + 6 + j]!
    out[to + j] = d * (((pair & 15) | fifthBit(bytes, at + 2, j)) - 16)
    out[to + j + 16] = d * (((pair >> 4) | fifthBit(bytes, at + 2, j + 16)) - 16)
  }
}

export const decodeQ5_1: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const m = readHalf(bytes, at + 2)
  for (let j = 0; j < 16; j++) {
    const pair = bytes[at + 8 + j]!
    out[to + j] = fround(d * ((pair & 15) | fifthBit(bytes, at + 4, j))) + m
    out[to + j + 16] = fround(d * ((pair >> 4) | fifthBit(bytes, at + 4, j + 16))) + m
  }
}

export const decodeQ8_0: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  for (let j = 0; j < 32; j++) out[to + j] = d * ((bytes[at + 2 + j]! << 24) >> 24)
}
