// block-weight.ts: tensors of GGUF as frozen weights.
import { expectInteger, expectOneOf } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { decodeBlocks } from './blocks/decode.js'
import { type BlockFormat, blockBytes, blockFormatNames, blockFormats } from './blocks/formats.js'
import { isBlockFormat, type WeightFormat } from './formats.js'
import type { Weight } from './weight.js'

/**
 * A tensor of a GGUF file as a weight in the same bytes, or in f32 where kernels do not read its format.
 * @param format - its format in the file
 * @param rows - out features
 * @param cols - in features
 * @param bytes - the blocks, row by row; they are not copied
 * @throws SparkError ERR_SHAPE when the bytes are not those of so many blocks; ERR_UNSUPPORTED, ERR_ARGUMENT
 */
export function blockWeight(format: BlockFormat, rows: number, cols: number, bytes: Uint8Array): Weight {
  expectOneOf('format', format, blockFormatNames)
  expectInteger('rows', rows, 0)
  expectInteger('cols', cols, 0)
  const { elements } = blockFormats[format]
  const length = cols % elements === 0 ? blockBytes(format, rows * cols) : Number.NaN
  if (bytes.byteLength !== length) {
    throw new SparkError(
      'ERR_SHAPE',
      `[${rows}, ${cols}] of ${format} is not ${bytes.byteLength} bytes of blocks of ${elements} neighbours of a row`,
    )
  }
  const name = format.toLowerCase() as WeightFormat
  if (isBlockFormat(name)) return { format: name, rows, cols, data: bytes }
  return { format: 'f32', rows, cols, data: decodeBlocks(format, bytes) }
}
