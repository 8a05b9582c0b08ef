// read-tensor.ts: conversion of TensorProto messages to constants, from raw bytes, typed fields or external files.
import { freemem } from 'node:os'
import { type ElementType, elementArrayOf, elementBits, elementBytes } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { atOnce, mapPaced, type Paced } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { Constant, type ConstantSource, type NumericType } from '../../graph/constant.js'
import { elementTypeOf } from '../../graph/element-types.js'
import type { SparseConstant } from '../../graph/graph.js'
import { decodeMessage } from './decode.js'
import { type ExternalFiles, externalSource } from './external.js'
import type { Message } from './messages.js'

/** Elements of a constant that a file describes without holding them, such as a sparse one. */
const maxExpandedElements = 2 ** 28

/** The context of a file that reading its tensors needs. */
export interface TensorContext {
  /** Names the file in errors. */
  readonly label: string
  /** The folder of external data, or why there is none. */
  readonly external: ExternalFiles
  /** The elements that raw data of a large file stands for; undefined where it is the elements itself. */
  left?(rawData: Uint8Array): ConstantSource | undefined
}

/**
 * Reads the bytes of a file that holds one tensor, as the test cases of ONNX have them (`input_0.pb`).
 * @throws SparkError ERR_FORMAT
 */
export function parseTensor(bytes: Uint8Array, label = 'tensor'): Constant {
  const context = { label, external: { folder: undefined, known: new Map() } }
  return atOnce(readTensor(context, decodeMessage(label, 'Tensor', bytes), 'the tensor'))
}

/**
 * A constant of a TensorProto.
 * @param what - names the tensor in errors
 * @throws SparkError ERR_FORMAT when the elements do not fit the shape or the type, ERR_IO for external data that
 * cannot be opened, ERR_UNSUPPORTED for one piece of a larger tensor
 */
export function* readTensor(
  context: TensorContext,
  tensor: Message<'Tensor'>,
  what: string,
): Paced<Constant> {
  const dtype = elementTypeOf(tensor.dataType, `${context.label}: ${what}`)
  const shape = readSizes(tensor.dims ?? [], `${context.label}: ${what}`)
  if (tensor.segment) {
    const { begin = 0n, end = 0n } = tensor.segment
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${context.label}: ${what} is a piece of a tensor (segment ${begin} to ${end}); write it whole`,
    )
  }
  try {
    return yield* constantOf(context, tensor, dtype, shape, what)
  } catch (error) {
    if (!(error instanceof SparkError) || error.code !== 'ERR_SHAPE') throw error
    throw new SparkError('ERR_FORMAT', `${context.label}: ${what}: ${error.message}`, { cause: error })
  }
}

function* constantOf(
  context: TensorContext,
  tensor: Message<'Tensor'>,
  dtype: ElementType,
  shape: readonly number[],
  what: string,
): Paced<Constant> {
  yield
  const count = numel(shape)
  if (dtype === 'string') {
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
    return Constant.strings(shape, yield* mapPaced(tensor.stringData ?? [], bytes => decoder.decode(bytes)))
  }
  if (tensor.dataLocation === 1) {
    const location = `${context.label}: ${what}`
    const source = externalSource(
      context.external,
      tensor.externalData ?? [],
      location,
      elementBytes(dtype, count),
    )
    return Constant.lazy(dtype, shape, source)
  }
  const left = tensor.rawData && context.left?.(tensor.rawData)
  if (left) return Constant.lazy(dtype, shape, left)
  return Constant.from(dtype, shape, tensor.rawData ?? (yield* typedField(tensor, dtype)))
}

/** Elements that are converted between two pauses. */
const piece = 1 << 16

/** The elements of the typed field that holds `dtype`; elements of 32 bits carry smaller ones as bit patterns. */
function* typedField(tensor: Message<'Tensor'>, dtype: NumericType): Paced<Uint8Array> {
  const array = elementArrayOf(dtype)
  const elements = fieldOf(tensor, dtype)
  const packed = new array(elements.length)
  const isU32 = dtype === 'u32'
  for (let start = 0; start < elements.length; start += piece) {
    const part = elements.slice(start, start + piece)
    packed.set((isU32 ? part.map(Number) : part) as ArrayLike<number> & ArrayLike<bigint>, start)
    yield
  }
  return new Uint8Array(packed.buffer)
}

function fieldOf(tensor: Message<'Tensor'>, dtype: NumericType): readonly (number | bigint)[] {
  switch (dtype) {
    case 'f32':
    case 'c64':
      return tensor.floatData ?? []
    case 'f64':
    case 'c128':
      return tensor.doubleData ?? []
    case 'i64':
      return tensor.int64Data ?? []
    case 'u64':
    case 'u32':
      return tensor.uint64Data ?? []
    default:
      return tensor.int32Data ?? []
  }
}

/**
 * A sparse constant of a SparseTensorProto.
 * @throws SparkError ERR_FORMAT
 */
export function* readSparse(
  context: TensorContext,
  { values, indices, dims = [] }: Message<'SparseTensor'>,
  what: string,
): Paced<SparseConstant> {
  if (!values || !indices) {
    throw new SparkError('ERR_FORMAT', `${context.label}: ${what} lacks its values or indices`)
  }
  const sparse = {
    shape: readSizes(dims, `${context.label}: ${what}`),
    values: yield* readTensor(context, values, `${what}.values`),
    indices: yield* readTensor(context, indices, `${what}.indices`),
  }
  const { length } = sparse.indices.shape
  const fits = length === 1 || (length === 2 && sparse.indices.shape[1] === sparse.shape.length)
  if (sparse.indices.dtype !== 'i64' || !fits || sparse.indices.shape[0] !== sparse.values.count) {
    throw new SparkError(
      'ERR_FORMAT',
      `${context.label}: ${what} has ${sparse.values.count} values but ${sparse.indices.dtype} indices of shape [${sparse.indices.shape.join(', ')}]`,
    )
  }
  return sparse
}

/**
 * Expands a sparse constant, lazily: a file of a few bytes may describe gigabytes.
 * @param what - names it in errors
 * @throws SparkError ERR_FORMAT for indices out of range, ERR_UNSUPPORTED when it would be absurdly large; reading it
 * ERR_OUT_OF_MEMORY when it is larger than what is free
 */
export function* densify({ shape, values, indices }: SparseConstant, what: string): Paced<Constant> {
  const count = numel(shape)
  const bits = elementBits[values.dtype]
  if (count > maxExpandedElements || bits < 8) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${what} is sparse ${values.dtype} [${shape.join(', ')}]; at most ${maxExpandedElements} elements of 8 bits or more can be expanded`,
    )
  }
  const offsets = yield* offsetsOf(indices, shape, what)
  const width = bits / 8
  const byteLength = count * width
  let made: WeakRef<Uint8Array> | undefined
  const read = (): Uint8Array => {
    const known = made?.deref()
    if (known) return known
    if (byteLength > freemem()) {
      const message = `${what} needs ${byteLength} bytes when it is expanded; ${freemem()} are free`
      throw new SparkError('ERR_OUT_OF_MEMORY', message)
    }
    const bytes = new Uint8Array(byteLength)
    const source = values.bytes
    for (const [i, offset] of offsets.entries())
      bytes.set(source.subarray(i * width, (i + 1) * width), offset * width)
    made = new WeakRef(bytes)
    return bytes
  }
  return Constant.lazy(values.dtype as NumericType, shape, { byteLength, read })
}

/** Where the values of a sparse constant are in the flattened whole. */
function* offsetsOf(indices: Constant, shape: readonly number[], what: string): Paced<Float64Array> {
  const sizes = indices.shape.length === 1 ? [numel(shape)] : shape
  const flat = indices.data as BigInt64Array
  const offsets = new Float64Array(indices.shape[0]!)
  for (let i = 0; i < offsets.length; i++) {
    const parts = Array.from(flat.subarray(i * sizes.length, (i + 1) * sizes.length), Number)
    if (parts.some((index, d) => index < 0 || index >= sizes[d]!)) {
      throw new SparkError(
        'ERR_FORMAT',
        `${what}: the index [${parts.join(', ')}] is outside of [${sizes.join(', ')}]`,
      )
    }
    offsets[i] = parts.reduce((offset, index, d) => offset * sizes[d]! + index, 0)
    if (i % piece === 0) yield
  }
  return offsets
}

/**
 * Sizes of dimensions as numbers.
 * @throws SparkError ERR_FORMAT for one that is negative or beyond 2^53
 */
function readSizes(dims: readonly bigint[], what: string): number[] {
  return dims.map(dim => {
    const size = Number(dim)
    if (!Number.isSafeInteger(size) || size < 0) {
      throw new SparkError('ERR_FORMAT', `${what} has a dimension of size ${dim}`)
    }
    return size
  })
}
