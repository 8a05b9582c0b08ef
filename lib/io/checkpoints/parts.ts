// parts.ts: the tensors that a quantized matrix consists of, with errors that name them.
import type { DType, DTypeArray } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import { decode } from '../../precision/casts.js'
import type { StoredTensor } from '../safetensors-folder.js'
import type { SafetensorsDType } from '../safetensors-header.js'

/** Tensors of a checkpoint by name. */
export type StoredTensors = ReadonlyMap<string, StoredTensor>

/** Element types that scales come in. */
export const scaleTypes = ['F32', 'F16', 'BF16'] as const

/** Finds the parts of a matrix by the ends of their names. */
export class Parts {
  /** What the names of the parts begin with. */
  readonly module: string
  readonly #label: string
  readonly #tensors: StoredTensors

  /** @param label - what errors call the checkpoint */
  constructor(label: string, tensors: StoredTensors, module: string) {
    this.#label = label
    this.#tensors = tensors
    this.module = module
  }

  /** Whether there is a part. */
  has(end: string): boolean {
    return this.#tensors.has(this.module + end)
  }

  /**
   * A part.
   * @throws SparkError ERR_FORMAT when it is missing or has another element type
   */
  get(end: string, ...types: readonly SafetensorsDType[]): StoredTensor {
    const tensor = this.#tensors.get(this.module + end)
    if (!tensor) throw this.error(end, `is missing, without which '${this.module}' cannot be decoded`)
    if (types.length === 0 || types.includes(tensor.dtype)) return tensor
    throw this.error(end, `is ${tensor.dtype}; expected ${types.join(' or ')}`)
  }

  /**
   * Sizes of a matrix.
   * @throws SparkError ERR_FORMAT when it has another number of dimensions
   */
  sizes(end: string): [rows: number, cols: number] {
    const { shape } = this.get(end)
    if (shape.length === 2 && shape[0]! > 0 && shape[1]! > 0) return [shape[0]!, shape[1]!]
    throw this.error(end, `has the shape [${shape.join(', ')}]; expected a matrix`)
  }

  /**
   * The part with as many elements as `shape` has, whatever sizes of 1 it has in addition.
   * @throws SparkError ERR_FORMAT
   */
  ofShape(end: string, shape: readonly number[], ...types: readonly SafetensorsDType[]): StoredTensor {
    const tensor = this.get(end, ...types)
    if (squeezed(tensor.shape) === squeezed(shape)) return tensor
    throw this.error(end, `has the shape [${tensor.shape.join(', ')}]; expected [${shape.join(', ')}]`)
  }

  /** Elements of a part of 8 bits. */
  async bytes(
    end: string,
    shape: readonly number[],
    ...types: readonly SafetensorsDType[]
  ): Promise<Uint8Array> {
    return this.ofShape(end, shape, ...types).load()
  }

  /** Elements of a part of 32-bit integers. */
  async words(end: string, shape: readonly number[]): Promise<Uint32Array> {
    const { buffer, byteOffset, byteLength } = await this.ofShape(end, shape, 'I32', 'U32').load()
    return new Uint32Array(buffer as ArrayBuffer, byteOffset, byteLength / 4)
  }

  /** Elements of a small part of integers. */
  async integers(end: string, count: number): Promise<number[]> {
    const tensor = this.ofShape(end, [count], 'I64', 'I32')
    const { buffer, byteOffset } = await tensor.load()
    const array = tensor.dtype === 'I64' ? BigInt64Array : Int32Array
    return Array.from(new array(buffer as ArrayBuffer, byteOffset, count), Number)
  }

  /**
   * Scales as f32, which holds all of them exactly.
   * @throws SparkError ERR_FORMAT when one is infinite or NaN
   */
  async scales(end: string, shape: readonly number[]): Promise<Float32Array> {
    const tensor = this.ofShape(end, shape, ...scaleTypes, 'F8_E8M0')
    const values = floatsOf(tensor.dtype, await tensor.load())
    const at = values.findIndex(value => !Number.isFinite(value))
    if (at < 0) return values
    throw this.error(end, `has the scale ${values[at]} at element ${at}; expected finite numbers`)
  }

  /** A scale per row, where the file has one for all of them or one for each. */
  async rowScales(end: string, rows: number): Promise<Float32Array> {
    if (squeezed(this.get(end).shape) !== '') return this.scales(end, [rows])
    return new Float32Array(rows).fill((await this.scales(end, [1]))[0]!)
  }

  /** An error that names a part. */
  error(end: string, what: string): SparkError {
    return new SparkError('ERR_FORMAT', `${this.#label}: '${this.module}${end}' ${what}`)
  }
}

/** Sizes but those of 1. */
const squeezed = (shape: readonly number[]): string => shape.filter(size => size !== 1).join()

function floatsOf(dtype: SafetensorsDType, bytes: Uint8Array): Float32Array {
  if (dtype === 'F8_E8M0')
    return Float32Array.from(bytes, code => (code === 0xff ? Number.NaN : 2 ** (code - 127)))
  const array = dtype === 'F32' ? Float32Array : Uint16Array
  const { buffer, byteOffset, byteLength } = bytes
  const elements = new array(buffer as ArrayBuffer, byteOffset, byteLength / array.BYTES_PER_ELEMENT)
  return dtype === 'F32'
    ? (elements as Float32Array)
    : decode(elements as DTypeArray, dtype.toLowerCase() as DType)
}
