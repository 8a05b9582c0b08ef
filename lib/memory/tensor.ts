// tensor.ts: a dense array in host memory with a shape and an element type.
import { inspect } from 'node:util'
import { argumentError, expectAttached, expectKnownOptions, expectOneOf } from '../core/checks.js'
import { type BackendName, backendNames } from '../core/config.js'
import {
  type DType,
  type DTypeArray,
  type ElementArray,
  type ElementType,
  elementArrayOf,
  elementBits,
  isBigInteger,
  isDType,
  isWideInteger,
  type TypedArrayOf,
} from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import { cast, encode } from '../precision/casts.js'

/** Numbers in nested arrays of any depth; all arrays of one depth have the same length. */
export type NestedNumbers = number | readonly NestedNumbers[]

/** Options of {@link Tensor.from}. */
export interface TensorOptions<D extends ElementType = DType> {
  /** Dimensions; by default the nesting of the arrays, or one dimension for a typed array. */
  shape?: readonly number[]
  /** Element type; by default f32. */
  dtype?: D
  /** Engine of the operations on it; by default what DGX_SPARK_BACKEND says, or `auto`. */
  backend?: BackendName
}

/** Element types that numbers can be given for. */
const numericTypes = (Object.keys(elementBits) as ElementType[]).filter(
  dtype => dtype !== 'string' && dtype !== 'c64' && dtype !== 'c128',
)

/** Dimensions a tensor may have at most. */
const maxDimensions = 32

/**
 * A dense row-major array in host memory. Shape and dtype never change; the elements change when the caller writes to
 * {@link Tensor.data}.
 *
 * @example
 * const x = Tensor.from([[1, 2, 3], [4, 5, 6]])
 * x.shape // [2, 3]
 * x.data  // Float32Array(6)
 */
export class Tensor<D extends ElementType = DType> {
  /** Sizes of the dimensions, outermost first; [] for a single number. */
  readonly shape: readonly number[]
  /** Element type. */
  readonly dtype: D
  /** The elements, row-major, without a copy; {@link TypedArrayOf} says how those that JavaScript lacks are held. */
  readonly data: TypedArrayOf<D>
  /** Engine of the operations on it, where one was asked for. */
  readonly backend: BackendName | undefined

  private constructor(data: TypedArrayOf<D>, shape: readonly number[], dtype: D, backend?: BackendName) {
    this.data = data
    this.shape = Object.freeze([...shape])
    this.dtype = dtype
    this.backend = backend
  }

  /**
   * A tensor of the given numbers. The typed array that {@link TypedArrayOf} names is taken as it is, without a copy
   * (a Uint16Array for f16 holds bit patterns). Nested arrays are rounded to the dtype; integers lose their fraction.
   *
   * @param values - a typed array, nested arrays of numbers, or one number
   * @param options - shape, dtype and backend
   * @throws SparkError ERR_SHAPE for ragged arrays or a shape that does not fit, ERR_DTYPE for an array that cannot
   * hold the dtype, ERR_ARGUMENT for anything else that is not a number
   */
  static from<D extends ElementType = 'f32'>(
    values: ElementArray | NestedNumbers,
    options: TensorOptions<D> = {},
  ): Tensor<D> {
    expectKnownOptions('options', options, ['shape', 'dtype', 'backend'])
    const { dtype = 'f32' as D, backend } = options
    expectOneOf('options.dtype', dtype, numericTypes)
    if (backend !== undefined) expectOneOf('options.backend', backend, backendNames)
    const { data, shape } = ArrayBuffer.isView(values)
      ? { data: expectArrayFor(values, dtype), shape: [values.length] }
      : flatten(values, dtype)
    const wanted = options.shape ?? shape
    expectElements(wanted, data.length)
    return new Tensor<D>(data, wanted, dtype, backend)
  }

  /**
   * A tensor of elements that are known to fit, strings included.
   * @internal
   */
  static of<D extends ElementType>(
    data: TypedArrayOf<D>,
    shape: readonly number[],
    dtype: D,
    backend?: BackendName,
  ): Tensor<D> {
    return new Tensor<D>(data, shape, dtype, backend)
  }

  /**
   * A tensor of zeros.
   * @throws SparkError ERR_SHAPE for a shape that is not a list of non-negative integers
   */
  static zeros<D extends ElementType = 'f32'>(shape: readonly number[], dtype: D = 'f32' as D): Tensor<D> {
    expectOneOf('dtype', dtype, numericTypes)
    const count = elementCount(shape)
    try {
      return new Tensor<D>(arrayOf(dtype, count), shape, dtype)
    } catch (error) {
      throw new SparkError('ERR_OUT_OF_MEMORY', `a tensor of [${shape.join(', ')}] ${dtype} does not fit`, {
        cause: error,
      })
    }
  }

  /** Number of elements. */
  get size(): number {
    return this.data.length
  }

  /**
   * The same elements, not copied, under another shape.
   * @throws SparkError ERR_SHAPE when the number of elements differs
   */
  reshape(shape: readonly number[]): Tensor<D> {
    this.#expectAttached()
    expectElements(shape, this.size)
    return new Tensor<D>(this.data, shape, this.dtype, this.backend)
  }

  /**
   * The elements rounded to another type, to the nearest value, ties to even; f8 saturates, integers lose their
   * fraction. The tensor itself when it has the type already.
   * @throws SparkError ERR_DTYPE for a type without numbers, or without a cast yet (types of less than 16 bits other
   * than f8_e4m3, f8_e5m2, i8, u8 and bool)
   */
  to<To extends ElementType>(dtype: To): Tensor<To>
  /** The same elements, not copied, whose operations run on another engine. */
  to(backend: BackendName): Tensor<D>
  to(target: ElementType | BackendName): Tensor<ElementType> {
    if (backendNames.includes(target as BackendName)) {
      return new Tensor<D>(this.data, this.shape, this.dtype, target as BackendName) as Tensor<ElementType>
    }
    this.#expectAttached()
    const dtype = target as ElementType
    expectOneOf('dtype', dtype, numericTypes)
    if ((this.dtype as ElementType) === dtype) return this as unknown as Tensor<ElementType>
    return new Tensor(convert(this.data, this.dtype, dtype), this.shape, dtype, this.backend)
  }

  /** The elements, row-major, once they are computed: {@link Tensor.data}, not a copy. */
  async read(): Promise<TypedArrayOf<D>> {
    return this.data
  }

  /** The elements as f32, row-major; {@link Tensor.data} itself, not a copy, when they are. */
  toFloat32(): Float32Array {
    return this.to('f32').data as Float32Array
  }

  /** The elements as numbers in arrays nested like the shape; one number for the shape []. */
  toArray(): NestedNumbers {
    const values = this.toFloat32()
    let next = 0
    const level = (depth: number): NestedNumbers =>
      depth === this.shape.length
        ? values[next++]!
        : Array.from({ length: this.shape[depth]! }, () => level(depth + 1))
    return level(0)
  }

  #expectAttached(): void {
    if (ArrayBuffer.isView(this.data)) expectAttached('the tensor', this.data)
  }
}

/**
 * Number of elements of a shape.
 * @throws SparkError ERR_SHAPE unless every dimension is a non-negative integer and the product is exact
 * @internal
 */
export function elementCount(shape: readonly number[]): number {
  const valid =
    Array.isArray(shape) &&
    shape.length <= maxDimensions &&
    shape.every(size => Number.isSafeInteger(size) && size >= 0)
  const count = valid ? numel(shape) : Number.NaN
  if (!Number.isSafeInteger(count)) {
    throw argumentError(
      'shape',
      `a list of at most ${maxDimensions} non-negative integers`,
      inspect(shape),
      'ERR_SHAPE',
    )
  }
  return count
}

function expectElements(shape: readonly number[], count: number): void {
  const wanted = elementCount(shape)
  if (wanted !== count) {
    throw new SparkError(
      'ERR_SHAPE',
      `shape [${shape.join(', ')}] has ${wanted} elements, but ${count} were given`,
    )
  }
}

const arrayOf = <D extends ElementType>(dtype: D, count: number): TypedArrayOf<D> =>
  new (elementArrayOf(dtype))(count) as TypedArrayOf<D>

function expectArrayFor<D extends ElementType>(values: ArrayBufferView, dtype: D): TypedArrayOf<D> {
  const kind = arrayOf(dtype, 0).constructor as new () => TypedArrayOf<D>
  // slice() of a Buffer, which is a Uint8Array, would not copy.
  if (values instanceof Buffer && kind.name === 'Uint8Array') {
    return new Uint8Array(values.buffer, values.byteOffset, values.length) as TypedArrayOf<D>
  }
  if (values instanceof kind) {
    expectAttached('values', values)
    return values
  }
  throw argumentError('values', `a ${kind.name} for dtype ${dtype}`, values, 'ERR_DTYPE')
}

/** Elements of `from` as elements of `to`, in a new array. */
function convert<To extends ElementType>(
  data: TypedArrayOf<ElementType>,
  from: ElementType,
  to: To,
): TypedArrayOf<To> {
  if (isDType(from) && isDType(to)) return cast(data as DTypeArray, from, to) as TypedArrayOf<To>
  const numbers = isDType(from) && from !== 'f32' ? cast(data as DTypeArray, from, 'f32') : data
  if (isDType(to)) {
    expectPlain(from)
    return encode(Float32Array.from(numbers as ArrayLike<number>, Number), to) as TypedArrayOf<To>
  }
  expectPlain(to)
  if (!isDType(from)) expectPlain(from)
  return fill(arrayOf(to, data.length), to, Array.from(numbers as ArrayLike<number>, Number))
}

/** Throws for formats without conversions to numbers. */
function expectPlain(dtype: ElementType): void {
  if (dtype !== 'f64' && dtype !== 'bool' && !isWideInteger(dtype)) {
    throw new SparkError('ERR_DTYPE', `there is no conversion between ${dtype} and other numbers`)
  }
}

/** The integer part of a number; the end of the range for infinity, 0 for NaN. */
function nearestBigInt(value: number, dtype: ElementType): bigint {
  if (Number.isFinite(value)) return BigInt(Math.trunc(value))
  if (Number.isNaN(value)) return 0n
  const [low, high] = dtype === 'i64' ? [-(2n ** 63n), 2n ** 63n - 1n] : [0n, 2n ** 64n - 1n]
  return value < 0 ? low : high
}

/** Stores numbers in an array of integers, bool or f64. */
function fill<D extends ElementType>(data: TypedArrayOf<D>, dtype: D, numbers: number[]): TypedArrayOf<D> {
  const stored =
    dtype === 'bool'
      ? (value: number) => Number(value !== 0)
      : isBigInteger(dtype)
        ? (value: number) => nearestBigInt(value, dtype)
        : (value: number) => value
  numbers.forEach((value, i) => {
    ;(data as unknown as (number | bigint)[])[i] = stored(value)
  })
  return data
}

/** Nested arrays as one flat array and the shape of their nesting. */
function flatten<D extends ElementType>(
  values: NestedNumbers,
  dtype: D,
): { data: TypedArrayOf<D>; shape: number[] } {
  const shape: number[] = []
  for (let level = values; Array.isArray(level); level = level[0]) {
    shape.push(level.length)
    if (shape.length > maxDimensions) {
      throw new SparkError('ERR_SHAPE', `values are nested deeper than ${maxDimensions} arrays`)
    }
  }
  const data = new Float64Array(elementCount(shape))
  let next = 0
  const visit = (level: NestedNumbers, depth: number): void => {
    if (depth === shape.length) {
      if (Array.isArray(level))
        throw new SparkError('ERR_SHAPE', 'values are ragged: some are arrays, some not')
      if (typeof level !== 'number') throw argumentError(`values[${next}]`, 'a number', level)
      data[next++] = level
      return
    }
    if (!Array.isArray(level) || level.length !== shape[depth]) {
      const found = Array.isArray(level) ? `${level.length} elements` : inspect(level)
      throw new SparkError(
        'ERR_SHAPE',
        `values are ragged: dimension ${depth} has ${shape[depth]} elements first, then ${found}`,
      )
    }
    for (const inner of level) visit(inner, depth + 1)
  }
  visit(values, 0)
  if (!isDType(dtype)) {
    expectPlain(dtype)
    return { data: fill(arrayOf(dtype, data.length), dtype, [...data]), shape }
  }
  const rounded = Float32Array.from(data)
  return { data: (dtype === 'f32' ? rounded : encode(rounded, dtype)) as TypedArrayOf<D>, shape }
}
