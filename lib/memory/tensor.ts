// tensor.ts: a dense array in host memory with a shape and an element type.
import { inspect } from 'node:util'
import {
  argumentError,
  expectAttached,
  expectInteger,
  expectKnownOptions,
  expectOneOf,
} from '../core/checks.js'
import { type BackendName, backendNames } from '../core/config.js'
import {
  type DType,
  type ElementArray,
  type ElementType,
  isBigInteger,
  type TypedArrayOf,
} from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { normal, randomGenerator } from '../core/random.js'
import { tensorHeader, tensorText } from './tensor-text.js'
import {
  arrayOf,
  convert,
  elementCount,
  elementsOf,
  expectElements,
  type Nested,
  type NestedNumbers,
  numericTypes,
  type TensorValues,
  type TypeOfArray,
} from './tensor-values.js'

export {
  elementCount,
  type Nested,
  type NestedNumbers,
  type TensorValues,
  type TypeOfArray,
} from './tensor-values.js'

/** Options of {@link Tensor.from}. */
export interface TensorOptions<D extends ElementType = DType> {
  /** Dimensions; by default the nesting of the arrays, or one dimension for a typed array. */
  shape?: readonly number[]
  /** Element type; by default that of the typed array, or f32, i64, bool or string, as the values are. */
  dtype?: D
  /** Engine of the operations on it; by default what DGX_SPARK_BACKEND says, or `auto`. */
  backend?: BackendName
}

/** {@link TensorOptions} without an element type, which is that of the values. */
export interface UntypedTensorOptions extends Omit<TensorOptions, 'dtype'> {
  /** Not given. */
  dtype?: undefined
}

/** Options of {@link Tensor.random}. */
export interface RandomOptions<D extends ElementType = ElementType> {
  /** The same seed gives the same numbers on every machine. Default: another one in each call. */
  seed?: number
  /** `uniform` in [0, 1), or `normal` with mean 0 and standard deviation 1. Default: uniform. */
  distribution?: 'uniform' | 'normal'
  /** f32, f64, f16 or bf16. Default: f32. */
  dtype?: D
}

/** What only this module can hand to the constructor. */
const internal: unique symbol = Symbol('internal')

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

  private constructor(
    key: typeof internal,
    data: TypedArrayOf<D>,
    shape: readonly number[],
    dtype: D,
    backend?: BackendName,
  ) {
    if (key !== internal) {
      const call =
        "Tensor.from(values, { shape, dtype }), such as Tensor.from(data, { shape: [2, 2], dtype: 'f32' })"
      throw new SparkError('ERR_ARGUMENT', `new Tensor(…) makes no tensor; call ${call}`)
    }
    this.data = data
    this.shape = Object.freeze([...shape])
    this.dtype = dtype
    this.backend = backend
  }

  /**
   * A tensor of the given values. A typed array is taken as it is, without a copy; where a Uint16Array holds bit patterns
   * of f16 or bf16, and a Uint8Array those of another type, `dtype` says so ({@link TypedArrayOf}). Values in nested arrays
   * become f32, bigints i64, booleans bool, texts string; with `dtype` they are rounded to that, and integers lose their
   * fraction.
   *
   * @param values - a typed array, values in nested arrays, or one value
   * @param options - shape, dtype and backend
   * @throws SparkError ERR_SHAPE for ragged arrays or a shape that does not fit, ERR_DTYPE for an array that cannot
   * hold the dtype, ERR_ARGUMENT for values of other kinds
   * @example
   * Tensor.from([[1, 2], [3, 4]])                      // f32 [2, 2]
   * Tensor.from(BigInt64Array.of(1n, 2n))              // i64 [2]
   * Tensor.from(new Uint8Array(12), { shape: [3, 4] }) // u8 [3, 4]
   * Tensor.from([1, 2, 3], { dtype: 'i32' })           // i32 [3]
   */
  static from<A extends ElementArray | Uint8ClampedArray>(
    values: A,
    options?: UntypedTensorOptions,
  ): Tensor<TypeOfArray<A>>
  static from(values: NestedNumbers, options?: UntypedTensorOptions): Tensor<'f32'>
  static from(values: Nested<bigint>, options?: UntypedTensorOptions): Tensor<'i64'>
  static from(values: Nested<boolean>, options?: UntypedTensorOptions): Tensor<'bool'>
  static from(values: Nested<string>, options?: UntypedTensorOptions): Tensor<'string'>
  static from<D extends ElementType>(values: TensorValues, options?: TensorOptions<D>): Tensor<D>
  static from(
    values: TensorValues,
    options: TensorOptions<ElementType> | UntypedTensorOptions = {},
  ): unknown {
    expectKnownOptions('options', options, ['shape', 'dtype', 'backend'])
    const { dtype, backend } = options
    if (dtype !== undefined) expectOneOf('options.dtype', dtype, [...numericTypes, 'string'])
    if (backend !== undefined) expectOneOf('options.backend', backend, backendNames)
    if ((values as unknown) instanceof Tensor)
      throw argumentError('values', 'numbers, not a tensor: convert that with tensor.to(dtype)', values)
    const elements = elementsOf(values, dtype)
    const shape = options.shape ?? elements.shape
    expectElements(shape, elements.data.length)
    return new Tensor<ElementType>(internal, elements.data, shape, elements.dtype, backend)
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
    return new Tensor<D>(internal, data, shape, dtype, backend)
  }

  /**
   * A tensor of zeros.
   * @throws SparkError ERR_SHAPE for a shape that is not a list of non-negative integers, ERR_OUT_OF_MEMORY
   */
  static zeros<D extends ElementType = 'f32'>(shape: readonly number[], dtype: D = 'f32' as D): Tensor<D> {
    expectOneOf('dtype', dtype, numericTypes)
    const count = elementCount(shape)
    try {
      return new Tensor<D>(internal, arrayOf(dtype, count), shape, dtype)
    } catch (error) {
      throw new SparkError('ERR_OUT_OF_MEMORY', `a tensor of [${shape.join(', ')}] ${dtype} does not fit`, {
        cause: error,
      })
    }
  }

  /**
   * A tensor of ones.
   * @throws SparkError as {@link Tensor.full}
   */
  static ones<D extends ElementType = 'f32'>(shape: readonly number[], dtype: D = 'f32' as D): Tensor<D> {
    return Tensor.full(shape, 1, dtype)
  }

  /**
   * A tensor whose elements are all `value`, rounded to the dtype.
   * @throws SparkError as {@link Tensor.zeros}; ERR_ARGUMENT for a value that is no number, bigint or boolean
   */
  static full<D extends ElementType = 'f32'>(
    shape: readonly number[],
    value: number | bigint | boolean,
    dtype: D = 'f32' as D,
  ): Tensor<D> {
    const tensor = Tensor.zeros(shape, dtype)
    if (!['number', 'bigint', 'boolean'].includes(typeof value))
      throw argumentError('value', 'a number', value)
    const [element] = elementsOf([value], dtype).data as [never]
    ;(tensor.data as { fill(value: never): unknown }).fill(element)
    return tensor
  }

  /**
   * A tensor of random numbers: xoshiro128**, 24 bits each.
   * @param options - `seed`, `distribution`, `dtype`
   * @throws SparkError as {@link Tensor.zeros}, ERR_ARGUMENT
   * @example
   * Tensor.random([2, 3], { seed: 1, distribution: 'normal' })
   */
  static random<D extends ElementType = 'f32'>(
    shape: readonly number[],
    options: RandomOptions<D> = {},
  ): Tensor<D> {
    expectKnownOptions('options', options, ['seed', 'distribution', 'dtype'])
    const {
      seed = Math.floor(Math.random() * 2 ** 32),
      distribution = 'uniform',
      dtype = 'f32' as D,
    } = options
    expectInteger('options.seed', seed, 0, 2 ** 32 - 1)
    expectOneOf('options.distribution', distribution, ['uniform', 'normal'])
    expectOneOf('options.dtype', dtype, ['f32', 'f64', 'f16', 'bf16'] as ElementType[])
    const random = randomGenerator(seed)
    const { data } = Tensor.zeros(shape)
    const numbers = distribution === 'normal' ? normal(random, data.length, 1) : data.map(random)
    return new Tensor<'f32'>(internal, numbers, shape, 'f32').to(dtype)
  }

  /**
   * Tensors one behind the other along an axis, in memory of their own.
   * @throws SparkError ERR_SHAPE, ERR_DTYPE or ERR_ARGUMENT for tensors that do not fit together
   */
  static concat<D extends ElementType>(tensors: readonly Tensor<D>[], axis = 0): Tensor<D> {
    return expectFirst(tensors).concat(tensors.slice(1), axis)
  }

  /**
   * Tensors of one shape along a new axis, in memory of their own.
   * @throws SparkError as {@link Tensor.concat}
   */
  static stack<D extends ElementType>(tensors: readonly Tensor<D>[], axis = 0): Tensor<D> {
    return expectFirst(tensors).stack(tensors.slice(1), axis)
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
    return new Tensor<D>(internal, this.data, shape, this.dtype, this.backend)
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
      return new Tensor<D>(
        internal,
        this.data,
        this.shape,
        this.dtype,
        target as BackendName,
      ) as Tensor<ElementType>
    }
    this.#expectAttached()
    const dtype = target as ElementType
    expectOneOf('dtype', dtype, numericTypes)
    if ((this.dtype as ElementType) === dtype) return this as unknown as Tensor<ElementType>
    return new Tensor(internal, convert(this.data, this.dtype, dtype), this.shape, dtype, this.backend)
  }

  /** The elements, row-major, once they are computed: {@link Tensor.data}, not a copy. */
  async read(): Promise<TypedArrayOf<D>> {
    return this.data
  }

  /** The elements as f32, row-major; {@link Tensor.data} itself, not a copy, when they are. */
  toFloat32(): Float32Array {
    return this.to('f32').data as Float32Array
  }

  /** The elements as numbers (or texts) in arrays nested like the shape; one for the shape []. Integers are exact up to 2^53. */
  toArray(): D extends 'string' ? Nested<string> : NestedNumbers {
    this.#expectAttached()
    const { dtype } = this
    const exact = dtype === 'string' || dtype === 'f64' || dtype === 'i32' || dtype === 'u32'
    const values = exact
      ? this.data
      : isBigInteger(dtype)
        ? Array.from(this.data as BigInt64Array, Number)
        : this.toFloat32()
    let next = 0
    const level = (depth: number): Nested<number | string> =>
      depth === this.shape.length
        ? (values[next++] as number)
        : Array.from({ length: this.shape[depth]! }, () => level(depth + 1))
    return level(0) as D extends 'string' ? Nested<string> : NestedNumbers
  }

  /** Type, shape and elements, the middle of long dimensions left out: `Tensor f32 [2, 2]` and rows of numbers. */
  toString(): string {
    return tensorText(this)
  }

  #expectAttached(): void {
    if (ArrayBuffer.isView(this.data)) expectAttached('the tensor', this.data)
  }
}

function expectFirst<D extends ElementType>(tensors: readonly Tensor<D>[]): Tensor<D> {
  const first = Array.isArray(tensors) ? tensors[0] : undefined
  if (!(first instanceof Tensor)) throw argumentError('tensors', 'a list of at least one tensor', tensors)
  return first
}

// What console.log shows; in deeply nested objects the first line of it.
Object.defineProperty(Tensor.prototype, inspect.custom, {
  value(this: Tensor<ElementType>, depth: number | null): string {
    return depth === null || depth > 0 ? tensorText(this) : tensorHeader(this)
  },
})
