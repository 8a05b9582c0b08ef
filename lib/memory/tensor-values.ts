// tensor-values.ts: elements of tensors from what a caller gives: typed arrays, nested arrays, numbers of other types.
import { inspect } from 'node:util'
import { argumentError, expectAttached } from '../core/checks.js'
import {
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

/** A value in arrays of any depth; all arrays of one depth have the same length. */
export type Nested<T> = T | readonly Nested<T>[]

/** Numbers in nested arrays of any depth; all arrays of one depth have the same length. */
export type NestedNumbers = number | readonly NestedNumbers[]

/** A single value that a tensor can be made of. */
type Leaf = number | bigint | boolean | string

/** What a tensor can be made of: a typed array, or values in nested arrays. */
export type TensorValues =
  | ElementArray
  | Uint8ClampedArray
  | NestedNumbers
  | Nested<number | bigint | boolean>
  | Nested<string>

/** The element type that a tensor of a typed array has unless another one is asked for. */
export type TypeOfArray<A> = A extends Float32Array
  ? 'f32'
  : A extends Float64Array
    ? 'f64'
    : A extends BigInt64Array
      ? 'i64'
      : A extends BigUint64Array
        ? 'u64'
        : A extends Int32Array
          ? 'i32'
          : A extends Uint32Array
            ? 'u32'
            : A extends Int16Array
              ? 'i16'
              : A extends Uint16Array
                ? 'u16'
                : A extends Int8Array
                  ? 'i8'
                  : 'u8'

/** Element types by the name of the typed array that holds them as they are. */
const arrayTypes: Readonly<Record<string, ElementType>> = {
  Float16Array: 'f16',
  Float32Array: 'f32',
  Float64Array: 'f64',
  BigInt64Array: 'i64',
  BigUint64Array: 'u64',
  Int32Array: 'i32',
  Uint32Array: 'u32',
  Int16Array: 'i16',
  Uint16Array: 'u16',
  Int8Array: 'i8',
  Uint8Array: 'u8',
  Uint8ClampedArray: 'u8',
}

const leafTypes: Readonly<Record<string, ElementType>> = {
  bigint: 'i64',
  boolean: 'bool',
  string: 'string',
}

/** Element types that numbers can be given for. */
export const numericTypes = (Object.keys(elementBits) as ElementType[]).filter(
  dtype => dtype !== 'string' && dtype !== 'c64' && dtype !== 'c128',
)

/** Dimensions a tensor may have at most. */
const maxDimensions = 32

/** Elements of a tensor and their type. */
export interface Elements {
  readonly data: TypedArrayOf<ElementType>
  readonly dtype: ElementType
  readonly shape: readonly number[]
}

/**
 * The elements of what a caller gives, of `dtype` or else of its own type.
 * @throws SparkError ERR_SHAPE for ragged arrays, ERR_DTYPE for a typed array of another type, ERR_ARGUMENT for a value
 * that no element can be made of, ERR_DISPOSED for memory that was detached
 */
export function elementsOf(values: unknown, dtype: ElementType | undefined): Elements {
  if (ArrayBuffer.isView(values)) return ofTypedArray(values, dtype)
  const { leaves, shape } = flatten(values)
  const type = dtype ?? leafTypes[typeof leaves[0]] ?? 'f32'
  return { data: ofLeaves(leaves, type, dtype !== undefined), dtype: type, shape }
}

const article = (name: string): string => `${/^[AEIOU](?!int)/.test(name) ? 'an' : 'a'} ${name}`

/** The name of a typed array of `dtype` for a message, with its article. */
export const arrayName = (dtype: ElementType): string => article(elementArrayOf(dtype).name)

function ofTypedArray(values: ArrayBufferView, asked: ElementType | undefined): Elements {
  const { name } = Object.getPrototypeOf(values).constructor as { name: string }
  // A Buffer is a Uint8Array whose slice() would not copy.
  const own = values instanceof Uint8Array ? 'u8' : arrayTypes[name]
  if (own === undefined)
    throw argumentError('values', 'a typed array or nested arrays of numbers', values, 'ERR_DTYPE')
  const dtype = asked ?? own
  const Kind = elementArrayOf(dtype)
  if (Kind.name !== elementArrayOf(own).name) {
    const remedy = `leave dtype out and convert: Tensor.from(values).to('${dtype}')`
    throw new SparkError(
      'ERR_DTYPE',
      `${argumentError('values', `${arrayName(dtype)} for dtype ${dtype}`, values).message}; ${remedy}`,
    )
  }
  expectAttached('values', values)
  const { buffer, byteOffset, byteLength } = values
  const length = byteLength / Kind.BYTES_PER_ELEMENT
  const plain = values.constructor === Kind
  const data = plain ? (values as ElementArray) : new Kind(buffer, byteOffset, length)
  return { data: data as TypedArrayOf<ElementType>, dtype, shape: [length] }
}

/** Values of nested arrays in one list, and the shape of the nesting. */
function flatten(values: unknown): { leaves: Leaf[]; shape: number[] } {
  const shape: number[] = []
  for (let level = values; Array.isArray(level); level = level[0]) {
    shape.push(level.length)
    if (shape.length > maxDimensions)
      throw new SparkError('ERR_SHAPE', `values are nested deeper than ${maxDimensions} arrays`)
  }
  elementCount(shape)
  const leaves: Leaf[] = []
  const visit = (level: unknown, depth: number): void => {
    if (depth === shape.length) {
      if (Array.isArray(level))
        throw new SparkError('ERR_SHAPE', 'values are ragged: some are arrays, some not')
      leaves.push(level as Leaf)
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
  return { leaves, shape }
}

/** @param mixed - whether numbers, bigints and booleans may stand beside each other */
function ofLeaves(leaves: readonly Leaf[], dtype: ElementType, mixed: boolean): TypedArrayOf<ElementType> {
  const kind = dtype === 'string' ? 'string' : mixed ? undefined : typeof leaves[0]
  const fits = kind
    ? (leaf: Leaf) => typeof leaf === kind
    : (leaf: Leaf) => typeof leaf === 'number' || typeof leaf === 'bigint' || typeof leaf === 'boolean'
  const isLeaf = kind === undefined || kind === 'number' || kind in leafTypes
  const wrong = leaves.findIndex(leaf => !isLeaf || !fits(leaf))
  if (wrong >= 0) {
    const wanted =
      dtype === 'string' && mixed
        ? "a string for options.dtype 'string'"
        : kind && isLeaf
          ? `a ${kind}`
          : 'a number'
    throw argumentError(leaves.length === 1 ? 'values' : `values[${wrong}]`, wanted, leaves[wrong])
  }
  if (dtype === 'string') return [...leaves] as string[]
  if (!isDType(dtype)) {
    expectPlain(dtype)
    return fill(arrayOf(dtype, leaves.length), dtype, leaves as readonly (number | bigint | boolean)[])
  }
  const rounded = Float32Array.from(leaves as number[], Number)
  return (dtype === 'f32' ? rounded : encode(rounded, dtype)) as TypedArrayOf<ElementType>
}

/**
 * Number of elements of a shape.
 * @throws SparkError ERR_SHAPE unless every dimension is a non-negative integer and the product is exact
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

/** Throws ERR_SHAPE unless a shape has `count` elements. */
export function expectElements(shape: readonly number[], count: number): void {
  const wanted = elementCount(shape)
  if (wanted !== count) {
    throw new SparkError(
      'ERR_SHAPE',
      `shape [${shape.join(', ')}] has ${wanted} elements, but ${count} were given`,
    )
  }
}

/** An array of zeros. */
export const arrayOf = <D extends ElementType>(dtype: D, count: number): TypedArrayOf<D> =>
  new (elementArrayOf(dtype))(count) as TypedArrayOf<D>

/** Elements of `from` as elements of `to`, in a new array. */
export function convert<To extends ElementType>(
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
  const exact = isBigInteger(from) && isBigInteger(to)
  return fill(
    arrayOf(to, data.length),
    to,
    exact ? Array.from(data as BigInt64Array) : Array.from(numbers as ArrayLike<number>, Number),
  )
}

/** Throws for formats without conversions to numbers. */
function expectPlain(dtype: ElementType): void {
  if (dtype !== 'f64' && dtype !== 'bool' && !isWideInteger(dtype)) {
    throw new SparkError('ERR_DTYPE', `there is no conversion between ${dtype} and other numbers`)
  }
}

/** The integer part of a number; the end of the range for infinity, 0 for NaN. */
function nearestBigInt(value: number | bigint | boolean, dtype: ElementType): bigint {
  if (typeof value !== 'number') return BigInt(value)
  if (Number.isFinite(value)) return BigInt(Math.trunc(value))
  if (Number.isNaN(value)) return 0n
  const [low, high] = dtype === 'i64' ? [-(2n ** 63n), 2n ** 63n - 1n] : [0n, 2n ** 64n - 1n]
  return value < 0 ? low : high
}

/** Stores numbers in an array of integers, bool or f64. */
export function fill<D extends ElementType>(
  data: TypedArrayOf<D>,
  dtype: D,
  numbers: readonly (number | bigint | boolean)[],
): TypedArrayOf<D> {
  const stored =
    dtype === 'bool'
      ? (value: number | bigint | boolean) => Number(Number(value) !== 0)
      : isBigInteger(dtype)
        ? (value: number | bigint | boolean) => nearestBigInt(value, dtype)
        : Number
  const target = data as unknown as (number | bigint)[]
  for (let i = 0; i < numbers.length; i++) target[i] = stored(numbers[i]!)
  return data
}
