// k-quants.ts: blocks of 256 elements whose runs of 16 or 32 have scales, and minima, of 4 to 8 bits; those have f16 scales.
// Value: d · scale · q − dmin · min (Q2_K, Q4_K, Q5_K), d · scale · q (Q3_K, Q6_K).
import { readHalf } from './halves.js'
import type { BlockDecoder } from './legacy-quants.js'

const { fround } = Math

/** Byte `at` as a signed number. */
const signed = (bytes: Uint8Array, at: number): number => (bytes[at]! << 24) >> 24

/** 16 bytes of scale (low) and minimum (high), 64 bytes of 2 bits, d, dmin. */
export const decodeQ2_K: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at + 80)
  const dmin = readHalf(bytes, at + 82)
  for (let run = 0; run < 16; run++) {
    const both = bytes[at + run]!
    const scale = fround(d * (both & 15))
    const min = fround(dmin * (both >> 4))
    // 128 elements are in 32 bytes: four shifts, of two runs each.
    const from = at + 16 + (run >> 3) * 32 + (run & 1) * 16
    const shift = ((run >> 1) & 3) * 2
    for (let j = 0; j < 16; j++)
      out[to + run * 16 + j] = fround(scale * ((bytes[from + j]! >> shift) & 3)) - min
  }
}

/** 32 bytes of third bits, 64 bytes of 2 bits, 12 bytes of 16 scales of 6 bits, d. */
export const decodeQ3_K: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at + 108)
  for (let run = 0; run < 16; run++) {
    const low = (bytes[at + 96 + (run & 7)]! >> (run < 8 ? 0 : 4)) & 15
    const high = (bytes[at + 104 + (run & 3)]! >> ((run >> 2) * 2)) & 3
    const scale = fround(d * ((low | (high << 4)) - 32))
    const start = (run & 1) * 16
    const from = at + 32 + (run >> 3) * 32 + start
    const shift = ((run >> 1) & 3) * 2
    const bit = run >> 1
    for (let j = 0; j < 16; j++) {
      const third = (bytes[at + start + j]! >> bit) & 1
      out[to + run * 16 + j] = scale * (((bytes[from + j]! >> shift) & 3) - (third ? 0 : 4))
    }
  }
}

/** The scale of a run of Q4_K and Q5_K: of the 12 bytes at `at`, the first four hold scales 0 to 3. */
export const scaleOf = (bytes: Uint8Array, at: number, run: number): number =>
  run < 4 ? bytes[at + run]! & 63 : (bytes[at + run + 4]! & 15) | ((bytes[at + run - 4]! >> 6) << 4)

/** The minimum of a run of Q4_K and Q5_K. */
export const minOf = (bytes: Uint8Array, at: number, run: number): number =>
  run < 4 ? bytes[at + run + 4]! & 63 : (bytes[at + run + 4]! >> 4) | ((bytes[at + run]! >> 6) << 4)

/** d, dmin, 12 bytes of scales and minima, 128 bytes of nibbles: of each 32 the low ones come first. */
export const decodeQ4_K: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const dmin = readHalf(bytes, at + 2)
  for (let run = 0; run < 8; run++) {
    const scale = fround(d * scaleOf(bytes, at + 4, run))
    const min = fround(dmin * minOf(bytes, at + 4, run))
    const from = at + 16 + (run >> 1) * 32
    const shift = (run & 1) * 4
    for (let j = 0; j < 32; j++)
      out[to + run * 32 + j] = fround(scale * ((bytes[from + j]! >> shift) & 15)) - min
  }
}

/** As Q4_K, with 32 bytes of fifth bits before the nibbles: bit r of byte j is that of element j of run r. */
export const decodeQ5_K: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const dmin = readHalf(bytes, at + 2)
  for (let run = 0; run < 8; run++) {
    const scale = fround(d * scaleOf(bytes, at + 4, run))
    const min = fround(dmin * minOf(bytes, at + 4, run))
    const from = at + 48 + (run >> 1) * 32
    const shift = (run & 1) * 4
    for (let j = 0; j < 32; j++) {
      const fifth = ((bytes[at + 16 + j]! >> run) & 1) << 4
      out[to + run * 32 + j] = fround(scale * (((bytes[from + j]! >> shift) & 15) | fifth)) - min
    }
  }
}

/** 128 bytes of 4 low bits, 64 bytes of 2 high bits, 16 signed scales, d. */
export const decodeQ6_K: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at + 208)
  for (let run = 0; run < 16; run++) {
    const scale = fround(d * signed(bytes, at + 192 + run))
    // Of 128 elements: 64 low nibbles, 64 high ones; the high bits of each 32 are at one shift.
    const half = run >> 3
    const within = (run & 7) * 16
    const low = at + half * 64 + (within & 63)
    const high = at + 128 + half * 32 + (within & 31)
    const lowShift = within < 64 ? 0 : 4
    const highShift = (within >> 5) * 2
    for (let j = 0; j < 16; j++) {
      const q = ((bytes[low + j]! >> lowShift) & 15) | (((bytes[high + j]! >> highShift) & 3) << 4)
      out[to + run * 16 + j] = scale * (q - 32)
    }
  }
}
