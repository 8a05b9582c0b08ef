// grid-quants.ts: blocks of 256 elements whose codes are indices of a grid of vectors (IQ1, IQ2, IQ3).
import { vectorsOf } from './grids.js'
import { halfOf, readHalf } from './halves.js'
import type { BlockDecoder } from './legacy-quants.js'

const { fround } = Math

const read16 = (bytes: Uint8Array, at: number): number => bytes[at]! | (bytes[at + 1]! << 8)

const read32 = (bytes: Uint8Array, at: number): number =>
  (read16(bytes, at) | (read16(bytes, at + 2) << 16)) >>> 0

/** 7 sign bits, and an eighth that makes their number even. */
function evenSigns(bits: number): number {
  const halves = bits ^ (bits >> 4)
  return bits | (((0x6996 >> (halves & 15)) & 1) << 7)
}

/** Writes a vector times `scale`, element i negative where bit i of `signs` is set. */
function writeSigned(
  vectors: Int8Array,
  size: number,
  code: number,
  scale: number,
  signs: number,
  out: Float32Array,
  to: number,
): void {
  for (let i = 0; i < size; i++) {
    const value = scale * vectors[code * size + i]!
    out[to + i] = (signs >> i) & 1 ? -value : value
  }
}

/** d; for each 32 elements 4 codes, then 4 times 7 sign bits and a scale of 4 bits. */
export const decodeIQ2_XXS: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const vectors = vectorsOf('IQ2_XXS')
  for (let run = 0; run < 8; run++) {
    const from = at + 2 + run * 8
    const rest = read32(bytes, from + 4)
    const scale = fround(fround(d * (0.5 + (rest >>> 28))) * 0.25)
    for (let i = 0; i < 4; i++) {
      const signs = evenSigns((rest >>> (7 * i)) & 127)
      writeSigned(vectors, 8, bytes[from + i]!, scale, signs, out, to + run * 32 + i * 8)
    }
  }
}

/** d, 32 times 9 bits of code and 7 sign bits, 8 bytes of 16 scales. */
export const decodeIQ2_XS: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const vectors = vectorsOf('IQ2_XS')
  for (let i = 0; i < 32; i++) {
    const both = read16(bytes, at + 2 + i * 2)
    const scale = quarterScale(d, bytes, at + 66, i >> 1)
    writeSigned(vectors, 8, both & 511, scale, evenSigns(both >> 9), out, to + i * 8)
  }
}

/** d, 32 low bytes of codes, 32 bytes of signs, 8 bytes of 2 high bits of codes, 8 bytes of 16 scales. */
export const decodeIQ2_S: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const vectors = vectorsOf('IQ2_S')
  for (let i = 0; i < 32; i++) {
    const high = (bytes[at + 66 + (i >> 2)]! >> ((i & 3) * 2)) & 3
    const code = bytes[at + 2 + i]! | (high << 8)
    const scale = quarterScale(d, bytes, at + 74, i >> 1)
    writeSigned(vectors, 8, code, scale, bytes[at + 34 + i]!, out, to + i * 8)
  }
}

/** (0.5 + s) · d / 4, s being nibble `index`. */
function quarterScale(d: number, bytes: Uint8Array, at: number, index: number): number {
  const nibble = (bytes[at + (index >> 1)]! >> ((index & 1) * 4)) & 15
  return fround(fround(d * (0.5 + nibble)) * 0.25)
}

/** d, 64 codes; for each 32 elements 4 times 7 sign bits and a scale of 4 bits. */
export const decodeIQ3_XXS: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const vectors = vectorsOf('IQ3_XXS')
  for (let run = 0; run < 8; run++) {
    const rest = read32(bytes, at + 66 + run * 4)
    const scale = fround(fround(d * (0.5 + (rest >>> 28))) * 0.5)
    for (let i = 0; i < 8; i++) {
      const signs = evenSigns((rest >>> (7 * (i >> 1))) & 127) >> ((i & 1) * 4)
      writeSigned(vectors, 4, bytes[at + 2 + run * 8 + i]!, scale, signs, out, to + run * 32 + i * 4)
    }
  }
}

/** d, 64 low bytes of codes, 8 bytes of their ninth bits, 32 bytes of signs, 4 bytes of 8 scales. */
export const decodeIQ3_S: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  const vectors = vectorsOf('IQ3_S')
  for (let i = 0; i < 64; i++) {
    const run = i >> 3
    const code = bytes[at + 2 + i]! | (((bytes[at + 66 + run]! >> (i & 7)) & 1) << 8)
    const nibble = (bytes[at + 106 + (run >> 1)]! >> ((run & 1) * 4)) & 15
    const signs = bytes[at + 74 + (i >> 1)]! >> ((i & 1) * 4)
    writeSigned(vectors, 4, code, fround(d * (1 + 2 * nibble)), signs, out, to + i * 4)
  }
}

/** Writes a ternary vector, moved by an eighth up or down, times `scale`. */
function writeMoved(code: number, scale: number, isDown: boolean, out: Float32Array, to: number): void {
  const vectors = vectorsOf('IQ1_S')
  const delta = isDown ? -0.125 : 0.125
  for (let i = 0; i < 8; i++) out[to + i] = scale * (vectors[code * 8 + i]! + delta)
}

/** d, 32 low bytes of codes; for each 32 elements 4 times 3 high bits, a scale of 3 bits, a sign of the delta. */
export const decodeIQ1_S: BlockDecoder = (bytes, at, out, to) => {
  const d = readHalf(bytes, at)
  for (let i = 0; i < 32; i++) {
    const rest = read16(bytes, at + 34 + (i >> 2) * 2)
    const code = bytes[at + 2 + i]! | (((rest >> ((i & 3) * 3)) & 7) << 8)
    const scale = fround(d * (2 * ((rest >> 12) & 7) + 1))
    writeMoved(code, scale, rest >= 0x8000, out, to + i * 8)
  }
}

/**
 * 32 low bytes of codes, 32 nibbles of 3 high bits and the sign of the delta, 4 times 4 scales of 3 bits and 4 bits of d.
 */
export const decodeIQ1_M: BlockDecoder = (bytes, at, out, to) => {
  const scales = at + 48
  const d = halfOf(
    (bytes[scales + 1]! >> 4) | (bytes[scales + 3]! & 0xf0),
    (bytes[scales + 5]! >> 4) | (bytes[scales + 7]! & 0xf0),
  )
  for (let i = 0; i < 32; i++) {
    const run = i >> 1
    const rest = bytes[at + 32 + run]! >> ((i & 1) * 4)
    const code = bytes[at + i]! | ((rest & 7) << 8)
    const scale = fround(d * (2 * ((read16(bytes, scales + (run >> 2) * 2) >> ((run & 3) * 3)) & 7) + 1))
    writeMoved(code, scale, (rest & 8) !== 0, out, to + i * 8)
  }
}
