// read-tensor.ts: TensorProto messages to constants, wherever their elements are: raw bytes, typed fields, other files.
import { type ElementType, elementArrayOf, elementBits, elementBytes } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { volume } from '../../core/shape.js'
import { Constant, type NumericType } from '../../graph/constant.js'
import { elementTypeOf } from '../../graph/element-types.js'
import type { SparseConstant } from '../../graph/graph.js'
import { decodeMessage } from './decode.js'
import { type ExternalFiles, externalSource } from './external.js'
import type { Message } from './messages.js'

/** Elements of a constant that a file describes without holding them, such as a sparse one. */
const maxExpandedElements = 2 ** 28

/** What reading a tensor needs to know of its file. */
export interface TensorContext {
  /** Names the file in errors. */
  readonly label: string
  /** The folder of external data, or why there is none. */
  readonly external: ExternalFiles
}

/**
 * Reads the bytes of a file that holds one tensor, as the test cases of ONNX have them (`input_0.pb`).
 * @throws SparkError ERR_FORMAT
 */
export function parseTensor(bytes: Uint8Array, label = 'tensor'): Constant {
  const context = { label, external: { folder: undefined, known: new Map() } }
  return readTensor(context, decodeMessage(label, 'Tensor', bytes), 'the tensor')
}

/**
 * A constant of a TensorProto.
 * @param what - names the tensor in errors
 * @throws SparkError ERR_FORMAT when the elements do not fit the shape or the type, ERR_IO for external data that
 * cannot be opened, ERR_UNSUPPORTED for one piece of a larger tensor
 */
export function readTensor(context: TensorContext, tensor: Message<'Tensor'>, what: string): Constant {
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
    return constantOf(context, tensor, dtype, shape, what)
  } catch (error) {
    if (!(error instanceof SparkError) || error.code !== 'ERR_SHAPE') throw error
    throw new SparkError('ERR_FORMAT', `${context.label}: ${what}: ${error.message}`, { cause: error })
  }
}

function constantOf(
  context: TensorContext,
  tensor: Message<'Tensor'>,
  dtype: ElementType,
  shape: readonly number[],
  what: string,
): Constant {
  const count = volume(shape)
  if (dtype === 'string') {
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
    return Constant.strings(
      shape,
      (tensor.stringData ?? []).map(bytes => decoder.decode(bytes)),
    )
  }
  if (tensor.dataLocation === 1) {
    const place = `${context.label}: ${what}`
    const source = externalSource(
      context.external,
      tensor.externalData ?? [],
      place,
      elementBytes(dtype, count),
    )
    return Constant.lazy(dtype, shape, source)
  }
  return Constant.from(dtype, shape, tensor.rawData ?? typedField(tensor, dtype))
}

/** The elements of the typed field that holds `dtype`; elements of 32 bits carry smaller ones as bit patterns. */
function typedField(tensor: Message<'Tensor'>, dtype: NumericType): Uint8Array {
  const array = elementArrayOf(dtype)
  const pack = (elements: readonly (number | bigint)[]): Uint8Array => {
    const packed = new array(elements.length)
    packed.set(elements as ArrayLike<number> & ArrayLike<bigint>)
    return new Uint8Array(packed.buffer)
  }
  switch (dtype) {
    case 'f32':
    case 'c64':
      return pack(tensor.floatData ?? [])
    case 'f64':
    case 'c128':
      return pack(tensor.doubleData ?? [])
    case 'i64':
      return pack(tensor.int64Data ?? [])
    case 'u64':
      return pack(tensor.uint64Data ?? [])
    case 'u32':
      return pack((tensor.uint64Data ?? []).map(Number))
    default:
      return pack(tensor.int32Data ?? [])
  }
}

/**
 * A sparse constant of a SparseTensorProto.
 * @throws SparkError ERR_FORMAT
 */
export function readSparse(
  context: TensorContext,
  { values, indices, dims = [] }: Message<'SparseTensor'>,
  what: string,
): SparseConstant {
  if (!values || !indices) {
    throw new SparkError('ERR_FORMAT', `${context.label}: ${what} lacks its values or indices`)
  }
  const sparse = {
    shape: readSizes(dims, `${context.label}: ${what}`),
    values: readTensor(context, values, `${what}.values`),
    indices: readTensor(context, indices, `${what}.indices`),
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
 * The whole of a sparse constant.
 * @param what - names it in errors
 * @throws SparkError ERR_FORMAT for indices out of range, ERR_UNSUPPORTED when it would be absurdly large
 */
export function densify({ shape, values, indices }: SparseConstant, what: string): Constant {
  const count = volume(shape)
  const bits = elementBits[values.dtype]
  if (count > maxExpandedElements || bits < 8) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${what} is sparse ${values.dtype} [${shape.join(', ')}]; at most ${maxExpandedElements} elements of 8 bits or more can be expanded`,
    )
  }
  const width = bits / 8
  const bytes = new Uint8Array(count * width)
  const source = values.bytes
  const flat = indices.integers()
  for (let i = 0; i < values.count; i++) {
    const rank = indices.shape.length === 1 ? 0 : shape.length
    const parts = rank ? flat.slice(i * rank, (i + 1) * rank) : [flat[i]]
    const sizes = rank ? shape : [count]
    if (parts.some((index, d) => index < 0 || index >= sizes[d])) {
      throw new SparkError(
        'ERR_FORMAT',
        `${what}: the index [${parts.join(', ')}] is outside of [${sizes.join(', ')}]`,
      )
    }
    const target = parts.reduce((offset, index, d) => offset * sizes[d] + index, 0)
    bytes.set(source.subarray(i * width, (i + 1) * width), target * width)
  }
  return Constant.from(values.dtype as NumericType, shape, bytes)
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
