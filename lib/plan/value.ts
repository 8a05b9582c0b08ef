// value.ts: values of a graph during compilation.
import { type ElementArray, type ElementType, elementArrayOf, type HalfType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { contiguousStrides, numel } from '../core/shape.js'
import { areNumbers, type Size, sameSize } from '../core/size.js'
import type { SizeValues } from '../core/size-scope.js'
import { Constant, type ConstantWeight, type NumericType } from '../graph/constant.js'
import type { WeightFormat } from '../weights/formats.js'
import { Buffer } from './program.js'

/** Element type and sizes of a value. */
export interface TensorShape {
  /** Element type. */
  readonly dtype: ElementType
  /** Sizes of the dimensions. */
  readonly shape: readonly Size[]
}

/** The memory of a state that grows. */
export class GrowingState {
  readonly buffer: Buffer
  /** The shape of the memory. */
  readonly shape: readonly Size[]
  /** The axis along which it grows. */
  readonly axis: number
  /** Elements between neighbours along each axis. */
  readonly strides: readonly Size[]
  /** Its shape after a run. */
  readonly next: readonly Size[]
  /** Whether something has been written behind it. */
  isExtended = false
  /** Whether something has been written over it. */
  isChanged = false

  constructor({ dtype, shape }: TensorShape, next: readonly Size[], axis: number, capacity: Size) {
    this.shape = shape.map((size, i) => (i === axis ? capacity : size))
    this.buffer = new Buffer(dtype, numel(this.shape), 'state')
    this.axis = axis
    this.strides = contiguousStrides(this.shape)
    this.next = next
  }

  /** Whether a value of this shape, which begins with the state, may be made by writing behind it along the axis. */
  canExtendTo(shape: readonly Size[], axis: number): boolean {
    return !this.isExtended && axis === this.axis && this.isNext(shape)
  }

  /** Whether the state has this shape after the run. */
  isNext(shape: readonly Size[]): boolean {
    return shape.length === this.next.length && shape.every((size, i) => sameSize(size, this.next[i]!))
  }
}

/** A value of the graph during compilation: row-major, contiguous elements in a buffer. */
export interface Value extends TensorShape {
  /** Where its elements are. */
  readonly buffer: Buffer
  /** Its elements where they are few and known at compile time. */
  readonly known?: readonly Size[] | undefined
  /** Its elements as a weight of a precision mode, where it is one. */
  readonly weight?: ConstantWeight | undefined
  /** The memory that it was copied from, where it is a state that grows. */
  readonly growing?: GrowingState | undefined
  /** The type of 16 bits that holds its f32 elements exactly, where it is known to be one. */
  readonly exactIn?: HalfType | undefined
  /** The format of the weight that an adapter made it of. */
  readonly adapted?: WeightFormat | undefined
}

/** @throws SparkError ERR_RANGE for an element of a wide integer type that is no integer */
function elementsOf(dtype: NumericType, numbers: readonly number[]): ElementArray {
  const data = new (elementArrayOf(dtype))(numbers.length)
  const big = dtype === 'i64' || dtype === 'u64'
  const wrong = big ? numbers.find(number => !Number.isInteger(number)) : undefined
  if (wrong !== undefined) throw new SparkError('ERR_RANGE', `${wrong} is no element of ${dtype}`)
  data.set((big ? numbers.map(BigInt) : numbers) as never)
  return data
}

/** A constant as a value. */
export function constantValue(constant: Constant, known?: readonly Size[]): Value {
  const { dtype, shape, count, weight } = constant
  const buffer = new Buffer(dtype, count, 'constant', constant)
  return { dtype, shape, buffer, known, weight }
}

/** A list of integers or floats; elements that are sizes get their values when a plan is bound. */
export function listValue(dtype: NumericType, shape: readonly Size[], numbers: readonly Size[]): Value {
  if (areNumbers(numbers) && areNumbers(shape))
    return constantValue(Constant.from(dtype, shape, elementsOf(dtype, numbers)), numbers)
  return { ...tableValue(dtype, shape, values => numbers.map(size => values.of(size))), known: numbers }
}

/**
 * A constant whose elements, or how many they are, depend on sizes: it is computed when a plan is bound, on the JavaScript
 * thread, and so must be small.
 */
export function tableValue(
  dtype: NumericType,
  shape: readonly Size[],
  make: (values: SizeValues) => readonly number[],
): Value {
  const buffer = new Buffer(dtype, numel(shape), 'sized', values => elementsOf(dtype, make(values)))
  return { dtype, shape, buffer }
}
