// decode.ts: tensors in any format of GGUF as f32.
import { argumentError, expectAttached, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { atOnce, type Paced } from '../../core/paced.js'
import { decode } from '../../precision/casts.js'
import { type BlockFormat, blockFormatNames, blockFormats } from './formats.js'
import * as grid from './grid-quants.js'
import * as k from './k-quants.js'
import * as legacy from './legacy-quants.js'
import * as table from './table-quants.js'

const decoders: Readonly<Partial<Record<BlockFormat, legacy.BlockDecoder>>> = {
  Q4_0: legacy.decodeQ4_0,
  Q4_1: legacy.decodeQ4_1,
  Q5_0: legacy.decodeQ5_0,
  Q5_1: legacy.decodeQ5_1,
  Q8_0: legacy.decodeQ8_0,
  Q2_K: k.decodeQ2_K,
  Q3_K: k.decodeQ3_K,
  Q4_K: k.decodeQ4_K,
  Q5_K: k.decodeQ5_K,
  Q6_K: k.decodeQ6_K,
  IQ1_S: grid.decodeIQ1_S,
  IQ1_M: grid.decodeIQ1_M,
  IQ2_XXS: grid.decodeIQ2_XXS,
  IQ2_XS: grid.decodeIQ2_XS,
  IQ2_S: grid.decodeIQ2_S,
  IQ3_XXS: grid.decodeIQ3_XXS,
  IQ3_S: grid.decodeIQ3_S,
  IQ4_NL: table.decodeIQ4_NL,
  IQ4_XS: table.decodeIQ4_XS,
  TQ1_0: table.decodeTQ1_0,
  TQ2_0: table.decodeTQ2_0,
  MXFP4: table.decodeMXFP4,
  NVFP4: table.decodeNVFP4,
}

/** Arrays of the scalar formats whose elements are numbers of JavaScript. */
const arrays = {
  F32: Float32Array,
  F64: Float64Array,
  I8: Int8Array,
  I16: Int16Array,
  I32: Int32Array,
  I64: BigInt64Array,
  F16: Uint16Array,
  BF16: Uint16Array,
} as const

const isScalar = (format: BlockFormat): format is keyof typeof arrays => Object.hasOwn(arrays, format)

/** Blocks that are decoded without a pause. */
const pacedBlocks = 1024

/** Formats that {@link decodeBlocks} reads. */
export const decodedFormats: readonly BlockFormat[] = blockFormatNames.filter(
  name => isScalar(name) || decoders[name] !== undefined,
)

/**
 * Expects a format that {@link decodeBlocks} reads.
 * @throws SparkError ERR_UNSUPPORTED
 */
export function expectDecoded(format: BlockFormat): void {
  if (decodedFormats.includes(format)) return
  const formats = decodedFormats.join(', ')
  throw new SparkError('ERR_UNSUPPORTED', `${format} cannot be decoded; those that can: ${formats}`)
}

/**
 * Decodes a tensor in a format of GGUF to f32, by its formula in f32: bit for bit what other readers without fused
 * multiply-add get. I32, I64 and F64 are rounded. Elements of NVFP4 lack the scale that its file has in a tensor of its own.
 * @param format - the format
 * @param bytes - whole blocks
 * @returns the elements, in a new array, or `bytes` themselves where they are F32 and aligned
 * @throws SparkError ERR_SHAPE when `bytes` end within a block; ERR_UNSUPPORTED for Q8_1 and Q8_K, which no file stores, and
 * for Q1_0 and Q2_0; ERR_ARGUMENT
 * @example
 * decodeBlocks('F16', new Uint8Array([0x00, 0x3c, 0x00, 0xc0])) // Float32Array [1, -2]
 */
export const decodeBlocks = (format: BlockFormat, bytes: Uint8Array): Float32Array =>
  atOnce(decodePaced(format, bytes))

/**
 * As {@link decodeBlocks}, in parts.
 * @throws SparkError as {@link decodeBlocks}
 */
export function* decodePaced(format: BlockFormat, bytes: Uint8Array): Paced<Float32Array> {
  expectOneOf('format', format, blockFormatNames)
  if (!(bytes instanceof Uint8Array)) throw argumentError('bytes', 'a Uint8Array', bytes)
  expectAttached('bytes', bytes)
  const { elements, bytes: blockBytes } = blockFormats[format]
  const blocks = bytes.byteLength / blockBytes
  if (!Number.isInteger(blocks)) {
    throw new SparkError(
      'ERR_SHAPE',
      `${format} has blocks of ${blockBytes} bytes, but there are ${bytes.byteLength} bytes`,
    )
  }
  if (isScalar(format)) return decodeScalars(format, bytes)
  expectDecoded(format)
  const decoder = decoders[format]!
  const out = new Float32Array(blocks * elements)
  for (let block = 0; block < blocks; block++) {
    if (block % pacedBlocks === 0) yield
    decoder(bytes, block * blockBytes, out, block * elements)
  }
  return out
}

function decodeScalars(format: keyof typeof arrays, bytes: Uint8Array): Float32Array {
  const array = arrays[format]
  const aligned = bytes.byteOffset % array.BYTES_PER_ELEMENT === 0 ? bytes : new Uint8Array(bytes)
  const length = bytes.byteLength / array.BYTES_PER_ELEMENT
  const values = new array(aligned.buffer as ArrayBuffer, aligned.byteOffset, length)
  if (values instanceof Float32Array) return values
  if (values instanceof Uint16Array) return decode(values, format === 'F16' ? 'f16' : 'bf16')
  return values instanceof BigInt64Array ? Float32Array.from(values, Number) : Float32Array.from(values)
}
