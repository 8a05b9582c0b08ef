// constant.ts: the elements of an initializer or tensor attribute, in memory or still in a file.
import type { RoundedRows } from '../core/activation-types.js'
import { expectAttached } from '../core/checks.js'
import {
  type ElementArray,
  type ElementType,
  elementArrayOf,
  elementBytes,
  isWideInteger,
} from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import type { FilePart } from '../weights/file-parts.js'
import type { SharedWeight } from '../weights/shared-weight.js'

/** The numbers of a constant as a weight, which products read without decoding all of it. */
export interface ConstantWeight {
  /** Its rows are the out features. */
  readonly shared: SharedWeight
  /** Whether the constant has them as columns. */
  readonly transposed: boolean
  /** The in feature of each column of the weight, where they have an order of their own. */
  readonly order?: Int32Array | undefined
  /** Whether what it is multiplied with must not be rounded. */
  readonly exact?: boolean
  /** What rows that it is multiplied with are rounded to where a backend has such products. Default: nothing. */
  readonly activations?: RoundedRows | undefined
  /** The tensor scale of all rows that are rounded to NVFP4. Default: each has one of its own. */
  readonly inputScale?: number | undefined
}

/** Where the bytes of a {@link Constant} come from when somebody asks for them. */
export interface ConstantSource {
  /** Bytes there are: those of the elements, packed, little-endian, row-major. */
  readonly byteLength: number
  /** Reads them. Called at each access, so that a model may be larger than memory. */
  read(): Uint8Array
  /** As `read`, to memory that nobody else has and without holding the JavaScript thread up. */
  load?: (() => Promise<Uint8Array>) | undefined
  /** The same numbers as a weight of a precision mode. */
  readonly weight?: ConstantWeight
  /** Whether reading costs nothing, because the bytes are there all the time. */
  readonly inMemory?: boolean
  /** Whether they are in a file beside that of the model. */
  readonly isBeside?: boolean
  /** The parts of files that they stay in. */
  readonly fileParts?: readonly FilePart[] | undefined
  /** As the source of some of the bytes alone. */
  part?(begin: number, byteLength: number): ConstantSource
}

/** An element type that has bytes. */
export type NumericType = Exclude<ElementType, 'string'>

/** Dimensions a constant may have at most. */
const maxDimensions = 64

/**
 * A tensor that never changes. Its bytes are those of a file where it came from one: nothing is read or copied before
 * {@link Constant.data} or {@link Constant.bytes} is asked for. Do not write into what they return.
 * @example
 * const weight = Constant.f32([1, 0, 0, 1], [2, 2])
 * const axes = Constant.i64([0, 1])
 * console.log(weight.dtype, weight.shape, weight.data, axes.count)
 */
export class Constant {
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions, outermost first; [] for a single element. */
  readonly shape: readonly number[]
  /** Elements. */
  readonly count: number
  readonly #source: ConstantSource | readonly string[]

  private constructor(
    dtype: ElementType,
    shape: readonly number[],
    source: ConstantSource | readonly string[],
  ) {
    this.dtype = dtype
    this.shape = Object.freeze([...shape])
    this.count = countOf(shape)
    this.#source = source
    const [given, wanted, unit] =
      'read' in source
        ? [source.byteLength, elementBytes(dtype, this.count), 'bytes']
        : [source.length, this.count, 'strings']
    if (given !== wanted) {
      throw new SparkError(
        'ERR_SHAPE',
        `${dtype} [${shape.join(', ')}] needs ${wanted} ${unit}, but there are ${given}`,
      )
    }
  }

  /**
   * A constant of the given elements, without a copy.
   * @param dtype - element type
   * @param shape - sizes of the dimensions
   * @param data - the elements: an array that {@link TypedArrayOf} names, or the packed bytes of any type
   * @throws SparkError ERR_SHAPE when they do not fit the shape
   */
  static from(dtype: NumericType, shape: readonly number[], data: ElementArray): Constant {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    return new Constant(dtype, shape, { byteLength: bytes.byteLength, read: () => bytes, inMemory: true })
  }

  /**
   * A constant whose elements are read when somebody asks for them, each time anew.
   * @internal
   * @throws SparkError ERR_SHAPE when the bytes do not fit the shape
   */
  static lazy(dtype: NumericType, shape: readonly number[], source: ConstantSource): Constant {
    return new Constant(dtype, shape, source)
  }

  /**
   * A constant of strings.
   * @throws SparkError ERR_SHAPE when they do not fit the shape
   */
  static strings(shape: readonly number[], values: readonly string[]): Constant {
    return new Constant('string', shape, Object.freeze([...values]))
  }

  /**
   * A constant of one i64 dimension, or of no dimension for a single number: axes, sizes, repeats.
   * @throws SparkError ERR_RANGE for a number that is no integer
   */
  static i64(values: number | readonly number[]): Constant {
    const list = typeof values === 'number' ? [values] : values
    const wrong = list.find(value => !Number.isInteger(value))
    if (wrong !== undefined) throw new SparkError('ERR_RANGE', `${wrong} is no integer`)
    const shape = typeof values === 'number' ? [] : [list.length]
    return Constant.from('i64', shape, BigInt64Array.from(list, BigInt))
  }

  /** A constant of f32 numbers; without `shape` of one dimension, or of none for a single number. */
  static f32(values: number | readonly number[], shape?: readonly number[]): Constant {
    const list = typeof values === 'number' ? [values] : values
    return Constant.from(
      'f32',
      shape ?? (typeof values === 'number' ? [] : [list.length]),
      Float32Array.from(list),
    )
  }

  /** Bytes of the elements, packed; 0 for strings. */
  get byteLength(): number {
    return elementBytes(this.dtype, this.count)
  }

  /**
   * Where its elements come from: constants of one origin and length have the same elements.
   * @internal
   */
  get origin(): { readonly object: object; readonly offset: number } {
    if (!('read' in this.#source) || !this.#source.inMemory) return { object: this.#source, offset: 0 }
    const { buffer, byteOffset } = this.#source.read()
    return { object: buffer, offset: byteOffset }
  }

  /**
   * Whether reading its elements costs nothing.
   * @internal
   */
  get inMemory(): boolean {
    return !('read' in this.#source) || this.#source.inMemory === true
  }

  /**
   * Whether its elements are in a file beside that of its model, which may change without the model's.
   * @internal
   */
  get isBeside(): boolean {
    return 'read' in this.#source && this.#source.isBeside === true
  }

  /**
   * Reads elements that are in a file to memory that nobody else has; undefined where they are somewhere else.
   * @internal
   * @throws SparkError as {@link Constant.bytes}
   */
  get load(): (() => Promise<Uint8Array>) | undefined {
    return 'read' in this.#source ? this.#source.load : undefined
  }

  /**
   * Where in files its elements are, for as long as it lives; none for those that are in memory.
   * @internal
   */
  get fileParts(): readonly FilePart[] {
    return ('read' in this.#source && this.#source.fileParts) || []
  }

  /**
   * The source of some of its bytes, which is read on its own; undefined where they are read with the others.
   * @internal
   */
  part(begin: number, byteLength: number): ConstantSource | undefined {
    return 'read' in this.#source ? this.#source.part?.(begin, byteLength) : undefined
  }

  /** The constant on bytes of its own where they are the smaller part of a file in memory, so that it need not stay. */
  detached(): Constant {
    if (!('read' in this.#source) || !this.#source.inMemory) return this
    const { bytes } = this
    const isPart = bytes.byteLength < bytes.buffer.byteLength / 2
    return isPart ? Constant.from(this.dtype as NumericType, this.shape, bytes.slice()) : this
  }

  /**
   * The elements as a weight of a precision mode, where they are kept as one.
   * @internal
   */
  get weight(): ConstantWeight | undefined {
    return 'read' in this.#source ? this.#source.weight : undefined
  }

  /**
   * The elements as packed little-endian bytes, row-major.
   * @throws SparkError ERR_IO or ERR_FORMAT when the file they are in cannot be read any more, ERR_DISPOSED when their
   * memory was detached, ERR_DTYPE for strings
   */
  get bytes(): Uint8Array {
    if (!('read' in this.#source)) throw new SparkError('ERR_DTYPE', 'a constant of strings has no bytes')
    const bytes = this.#source.read()
    expectAttached('a constant', bytes)
    return bytes
  }

  /**
   * The elements, row-major, in the array that {@link TypedArrayOf} names. The bytes are copied only where they are
   * not aligned.
   * @throws SparkError as {@link Constant.bytes}
   */
  get data(): ElementArray {
    const bytes = this.bytes
    const array = elementArrayOf(this.dtype)
    const length = bytes.byteLength / array.BYTES_PER_ELEMENT
    if (bytes.byteOffset % array.BYTES_PER_ELEMENT === 0) {
      return new array(bytes.buffer, bytes.byteOffset, length)
    }
    return new array(bytes.slice().buffer, 0, length)
  }

  /**
   * The elements of a constant of strings, row-major.
   * @throws SparkError ERR_DTYPE for numbers
   */
  get strings(): readonly string[] {
    if ('read' in this.#source)
      throw new SparkError('ERR_DTYPE', `a constant of ${this.dtype} has no strings`)
    return this.#source
  }

  /**
   * The elements as integers.
   * @throws SparkError ERR_DTYPE unless the type is an integer of at least 8 bits or bool, ERR_RANGE for an element
   * that a number would round
   */
  integers(): number[] {
    if (this.dtype !== 'bool' && !isWideInteger(this.dtype)) {
      throw new SparkError('ERR_DTYPE', `a constant of ${this.dtype} has no integers`)
    }
    return Array.from(this.data as ArrayLike<number | bigint>, value => {
      const number = Number(value)
      if (!Number.isSafeInteger(number)) throw new SparkError('ERR_RANGE', `${value} is beyond 2^53`)
      return number
    })
  }
}

/** Elements of a tensor of `shape`. */
function countOf(shape: readonly number[]): number {
  const count = numel(shape)
  const sizes = shape.length <= maxDimensions && shape.every(size => Number.isSafeInteger(size) && size >= 0)
  if (!sizes || !Number.isSafeInteger(count)) {
    throw new SparkError(
      'ERR_SHAPE',
      `[${shape.slice(0, maxDimensions).join(', ')}] is not the shape of a tensor`,
    )
  }
  return count
}
