// block-weight.ts: tensors of GGUF as frozen weights.
import { expectInteger, expectOneOf } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { Pacer } from '../core/paced.js'
import { decodeBlocks, decodePaced, expectDecoded } from './blocks/decode.js'
import { type BlockFormat, blockBytes, blockFormatNames, blockFormats } from './blocks/formats.js'
import { nvfp4OfBlocks } from './blocks/nvfp4.js'
import { isBlockFormat, type WeightFormat } from './formats.js'
import { LazyRows, type LazyWeight, type StoredBytes } from './lazy-weight.js'
import type { Weight } from './weight.js'

const floatFormats = { F32: 'f32', F16: 'f16', BF16: 'bf16' } as const

/**
 * A tensor of a GGUF file as a weight in the same bytes, in the same codes for NVFP4, or in f32 where kernels do not read its format.
 * @param format - its format in the file
 * @param rows - out features
 * @param cols - in features
 * @param stored - the blocks, row by row
 * @param scale - what the elements are multiplied with; NVFP4 only
 * @throws SparkError ERR_SHAPE when the bytes are not those of so many blocks; ERR_UNSUPPORTED, ERR_ARGUMENT
 */
export function blockWeight(
  format: BlockFormat,
  rows: number,
  cols: number,
  stored: StoredBytes,
  scale = 1,
): LazyWeight {
  expectOneOf('format', format, blockFormatNames)
  expectInteger('rows', rows, 0)
  expectInteger('cols', cols, 0)
  const { elements } = blockFormats[format]
  const length = cols % elements === 0 ? blockBytes(format, rows * cols) : Number.NaN
  if (stored.byteLength !== length) {
    throw new SparkError(
      'ERR_SHAPE',
      `[${rows}, ${cols}] of ${format} is not ${stored.byteLength} bytes of blocks of ${elements} neighbours of a row`,
    )
  }
  const float = Object.hasOwn(floatFormats, format) && floatFormats[format as keyof typeof floatFormats]
  if (float) return new LazyRows(float, rows, cols, stored)
  const name = format.toLowerCase() as WeightFormat
  if (isBlockFormat(name)) return new LazyRows(name, rows, cols, stored)
  if (format === 'NVFP4') {
    const converted = (bytes: Uint8Array): Weight => nvfp4OfBlocks(rows, cols, bytes, scale)
    const load = async (): Promise<Weight> => converted(await stored.load())
    return { format: 'nvfp4', rows, cols, read: () => converted(stored.read()), load }
  }
  expectDecoded(format)
  const inFloats = (data: Float32Array): Weight => ({ format: 'f32', rows, cols, data })
  return {
    format: 'f32',
    rows,
    cols,
    read: () => inFloats(decodeBlocks(format, stored.read())),
    load: async () => inFloats(await new Pacer().do(decodePaced(format, await stored.load()))),
  }
}
