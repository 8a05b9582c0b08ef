// write.ts: writer of GGUF files.
import path from 'node:path'
import { argumentError, expectInteger, expectObject, expectOneOf } from '../../core/checks.js'
import type { ElementArray } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { roundUp } from '../../core/size.js'
import { encodePaced } from '../../weights/blocks/encode.js'
import { blockBytes, blockFormatNames, blockFormats } from '../../weights/blocks/formats.js'
import { writeFileAtomic } from '../atomic-write.js'
import { defaultAlignment, maxDimensions } from './header.js'
import { HeaderBytes } from './header-bytes.js'
import type { GgufInput, GgufTensorInput } from './input.js'
import type { GgufValue } from './values.js'

/** Version that is written. */
const version = 3

/** Writes a file as `writeGguf` does. */
export async function writeFile(file: string, { metadata = [], tensors = [] }: GgufInput): Promise<void> {
  const pairs = Symbol.iterator in metadata ? [...metadata] : Object.entries(metadata)
  const list = [...tensors]
  list.forEach(expectTensor)
  expectUnique(
    'metadata',
    pairs.map(([key]) => key),
  )
  expectUnique(
    'tensors',
    list.map(({ name }) => name),
  )
  const alignment = alignmentOf(pairs)
  const header = headerOf(pairs, list, alignment)
  await writeFileAtomic(path.resolve(file), chunksOf(header, list, alignment))
}

/** Bytes of a tensor in a file, without what pads them. */
const bytesOf = ({ format, shape }: GgufTensorInput): number => blockBytes(format, numel(shape))

function headerOf(
  pairs: readonly (readonly [string, GgufValue])[],
  tensors: readonly GgufTensorInput[],
  alignment: number,
): Uint8Array {
  const header = new HeaderBytes()
  header.raw(Buffer.from('GGUF'))
  header.u32(version)
  header.u64(tensors.length)
  header.u64(pairs.length)
  for (const [key, value] of pairs) {
    header.text(key)
    header.value(`metadata['${key}']`, value)
  }
  let offset = 0
  for (const tensor of tensors) {
    header.text(tensor.name)
    header.u32(tensor.shape.length)
    for (const size of [...tensor.shape].reverse()) header.u64(size)
    header.u32(blockFormats[tensor.format].id)
    header.u64(offset)
    offset += roundUp(bytesOf(tensor), alignment)
  }
  return header.bytes(alignment)
}

async function* chunksOf(
  header: Uint8Array,
  tensors: readonly GgufTensorInput[],
  alignment: number,
): AsyncGenerator<Uint8Array> {
  yield header
  for (const tensor of tensors) {
    const bytes = await storedBytes(tensor)
    yield bytes
    yield new Uint8Array(roundUp(bytes.byteLength, alignment) - bytes.byteLength)
  }
}

async function storedBytes(tensor: GgufTensorInput): Promise<Uint8Array> {
  const { name, format, shape } = tensor
  const what = `tensor '${name}' is ${format} [${shape.join(', ')}]`
  if ('load' in tensor) {
    const data: ElementArray = await tensor.load()
    if (!ArrayBuffer.isView(data)) throw argumentError(`load() of tensor '${name}'`, 'a typed array', data)
    if (data.byteLength !== bytesOf(tensor))
      throw new SparkError(
        'ERR_SHAPE',
        `${what}: ${bytesOf(tensor)} bytes, but load() gave ${data.byteLength}`,
      )
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  }
  const values = await tensor.values()
  if (!(values instanceof Float32Array))
    throw argumentError(`values() of tensor '${name}'`, 'a Float32Array', values)
  if (values.length !== numel(shape))
    throw new SparkError('ERR_SHAPE', `${what}: ${numel(shape)} elements, but values() gave ${values.length}`)
  return new Pacer().do(encodePaced(tensor.format, values))
}

function expectTensor(tensor: GgufTensorInput, index: number): void {
  const which = `tensors[${index}]`
  expectObject(which, 'a tensor with name, format, shape, and load() or values()', tensor)
  const { name, format, shape } = tensor
  if (typeof name !== 'string' || name === '')
    throw argumentError(`${which}.name`, 'a non-empty string', name)
  expectOneOf(`${which}.format`, format, blockFormatNames)
  if (!Array.isArray(shape) || shape.length > maxDimensions)
    throw argumentError(`${which}.shape`, `a list of at most ${maxDimensions} sizes`, shape)
  for (const size of shape) expectInteger(`a size of ${which}.shape`, size, 0)
  const { elements } = blockFormats[format]
  if ((shape.at(-1) ?? 1) % elements !== 0) {
    const rows = `${format} needs rows of a multiple of ${elements} elements`
    throw new SparkError('ERR_SHAPE', `tensor '${name}' is [${shape.join(', ')}]; ${rows}`)
  }
  if (!Number.isSafeInteger(bytesOf(tensor)))
    throw new SparkError('ERR_SHAPE', `tensor '${name}' is [${shape.join(', ')}], which no file can hold`)
  const give = 'load' in tensor ? tensor.load : tensor.values
  if (typeof give !== 'function') throw argumentError(which, 'a tensor with load() or values()', tensor)
}

function expectUnique(what: string, names: readonly string[]): void {
  const seen = new Set<string>()
  for (const name of names) {
    if (seen.has(name)) throw new SparkError('ERR_ARGUMENT', `${what} has '${name}' twice`)
    seen.add(name)
  }
}

function alignmentOf(pairs: readonly (readonly [string, GgufValue])[]): number {
  const found = pairs.find(([key]) => key === 'general.alignment')?.[1]
  if (!found) return defaultAlignment
  const { type, value } = found
  if (type === 'u32' && value > 0 && (value & (value - 1)) === 0) return value
  throw argumentError("metadata['general.alignment']", 'a power of two of type u32', found)
}
