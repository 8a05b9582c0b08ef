// encode.ts: f32 in the formats of GGUF.
import { argumentError, expectAttached, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { atOnce, type Paced } from '../../core/paced.js'
import { encode } from '../../precision/casts.js'
import { type BlockEncoder, encodeK, extreme } from './encode-k.js'
import { type BlockFormat, blockFormats } from './formats.js'
import { writeHalf } from './halves.js'

const { abs, floor, fround, sign, trunc } = Math

/** 1 / d in f32; 0 for 0. */
const inverse = (d: number): number => (d === 0 ? 0 : fround(1 / d))

/** The smallest and the largest of 32 elements. */
function rangeOf(values: Float32Array, from: number): [min: number, max: number] {
  let min = values[from]!
  let max = min
  for (let i = from + 1; i < from + 32; i++) {
    if (values[i]! < min) min = values[i]!
    if (values[i]! > max) max = values[i]!
  }
  return [min, max]
}

/** Writes the low 4 bits of 32 codes, and the fifth ones to the 4 bytes at `fifths`, unless that is undefined. */
function packCodes(codeOf: (i: number) => number, bytes: Uint8Array, at: number, fifths?: number): void {
  for (let j = 0; j < 16; j++) {
    const [low, high] = [codeOf(j), codeOf(j + 16)]
    bytes[at + j] = (low & 15) | ((high & 15) << 4)
    if (fifths === undefined) continue
    bytes[fifths + (j >> 3)]! |= (low >> 4) << (j & 7)
    bytes[fifths + 2 + (j >> 3)]! |= (high >> 4) << (j & 7)
  }
}

/** d · (q − 2^(bits−1)), the element of the largest magnitude being the lowest code. */
const symmetric =
  (bits: 4 | 5): BlockEncoder =>
  (values, from, bytes, at) => {
    const middle = 2 ** (bits - 1)
    const d = fround(extreme(values, from, 32) / -middle)
    const id = inverse(d)
    const codeOf = (i: number): number =>
      Math.min(trunc(fround(fround(values[from + i]! * id) + (middle + 0.5))), 2 * middle - 1)
    packCodes(codeOf, bytes, at + (bits === 4 ? 2 : 6), bits === 5 ? at + 2 : undefined)
    return Number.isFinite(writeHalf(bytes, at, d))
  }

/** d · q + m, m being the smallest element. */
const asymmetric =
  (bits: 4 | 5): BlockEncoder =>
  (values, from, bytes, at) => {
    const [min, max] = rangeOf(values, from)
    const last = 2 ** bits - 1
    const d = fround(fround(max - min) / last)
    const id = inverse(d)
    const codeOf = (i: number): number =>
      Math.min(trunc(fround(fround(fround(values[from + i]! - min) * id) + 0.5)), last)
    packCodes(codeOf, bytes, at + (bits === 4 ? 4 : 8), bits === 5 ? at + 4 : undefined)
    return Number.isFinite(writeHalf(bytes, at, d)) && Number.isFinite(writeHalf(bytes, at + 2, min))
  }

const encodeQ8_0: BlockEncoder = (values, from, bytes, at) => {
  const d = fround(abs(extreme(values, from, 32)) / 127)
  const id = inverse(d)
  for (let j = 0; j < 32; j++) {
    const scaled = fround(values[from + j]! * id)
    bytes[at + 2 + j] = sign(scaled) * floor(abs(scaled) + 0.5)
  }
  return Number.isFinite(writeHalf(bytes, at, d))
}

const encoders = {
  Q4_0: symmetric(4),
  Q4_1: asymmetric(4),
  Q5_0: symmetric(5),
  Q5_1: asymmetric(5),
  Q8_0: encodeQ8_0,
  ...encodeK,
} as const satisfies Readonly<Partial<Record<BlockFormat, BlockEncoder>>>

/** Blocks that are encoded without a pause. */
const pacedBlocks = 256

/** Formats of GGUF that numbers are rounded to. */
export type EncodedFormat = keyof typeof encoders | 'F32' | 'F16' | 'BF16'

/** Their names. */
export const encodedFormats = ['F32', 'F16', 'BF16', ...Object.keys(encoders)] as readonly EncodedFormat[]

/**
 * Rounds f32 to a format of GGUF. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 are bit for bit what the reference quantizers give; Q4_K,
 * Q5_K and Q6_K take the range of each run, without the search for better scales.
 * @param format - the format
 * @param values - whole blocks
 * @returns the blocks, in a new array
 * @throws SparkError ERR_SHAPE when `values` end within a block; ERR_NOT_FINITE for an element that is not finite; ERR_RANGE
 * when a scale is beyond the range of f16; ERR_ARGUMENT for a format that is only read, too
 */
export const encodeBlocks = (format: EncodedFormat, values: Float32Array): Uint8Array =>
  atOnce(encodePaced(format, values))

/**
 * As {@link encodeBlocks}, in parts.
 * @throws SparkError as {@link encodeBlocks}
 */
export function* encodePaced(format: EncodedFormat, values: Float32Array): Paced<Uint8Array> {
  expectOneOf('format', format, encodedFormats)
  if (!(values instanceof Float32Array)) throw argumentError('values', 'a Float32Array', values)
  expectAttached('values', values)
  if (format === 'F32') return new Uint8Array(values.slice().buffer)
  if (format === 'F16' || format === 'BF16')
    return new Uint8Array(encode(values, format === 'F16' ? 'f16' : 'bf16').buffer)
  const wrong = values.findIndex(value => !Number.isFinite(value))
  if (wrong >= 0)
    throw new SparkError(
      'ERR_NOT_FINITE',
      `values[${wrong}] is ${values[wrong]}: ${format} has finite numbers only`,
    )
  const { elements, bytes: blockBytes } = blockFormats[format]
  const blocks = values.length / elements
  if (!Number.isInteger(blocks)) {
    throw new SparkError(
      'ERR_SHAPE',
      `${format} has blocks of ${elements} elements, but there are ${values.length} values`,
    )
  }
  const bytes = new Uint8Array(blocks * blockBytes)
  for (let block = 0; block < blocks; block++) {
    if (block % pacedBlocks === 0) yield
    if (encoders[format](values, block * elements, bytes, block * blockBytes)) continue
    const from = block * elements
    throw new SparkError(
      'ERR_RANGE',
      `values[${from}] to values[${from + elements - 1}] need a scale beyond f16: store them as BF16 or F32`,
    )
  }
  return bytes
}
