// scaled-codes.ts: the tensors that DequantizeLinear makes, from their codes to numbers and back.
import {
  type DType,
  type DTypeArray,
  type ElementArray,
  type ElementType,
  elementArrayOf,
  elementBits,
  isDType,
  isHalf,
  isNarrowInteger,
  isUnsigned,
} from '../core/dtype.js'
import { clamp, roundHalfEven } from '../core/rounding.js'
import { numel } from '../core/shape.js'
import { decode, encode } from '../precision/casts.js'
import { Constant, type NumericType } from './constant.js'
import { unpackedData } from './packed.js'

/** Element (code − zero) · scale for each code: what a `DequantizeLinear` node reads. */
export interface ScaledCodes {
  /** Integers of up to 32 bits, f8_e4m3 or f8_e5m2. */
  readonly codes: Constant
  /** f32, f16 or bf16: one for all, one for each index of `axis`, or one for each block along it. */
  readonly scale: Constant
  /** Zero points, of the type of the codes and the shape of the scales. */
  readonly zero?: Constant | undefined
  /** The axis of several scales. */
  readonly axis: number
  /** Elements of a block; 0 where there are none. */
  readonly block: number
}

/** Least and largest code of a type. */
function rangeOf(dtype: ElementType): readonly [number, number] {
  if (isDType(dtype)) return dtype === 'f8_e4m3' ? [-448, 448] : [-57344, 57344]
  const count = 2 ** elementBits[dtype]
  return isUnsigned(dtype) ? [0, count - 1] : [-count / 2, count / 2 - 1]
}

const isCode = (dtype: ElementType): boolean =>
  isNarrowInteger(dtype) || dtype === 'i32' || dtype === 'f8_e4m3' || dtype === 'f8_e5m2'

/** Whether types and shapes are those of {@link ScaledCodes}. */
export function fitsCodes({ codes, scale, zero, axis, block }: ScaledCodes): boolean {
  const size = codes.shape[axis]
  const blocked = codes.shape.map((count, i) => (i === axis ? Math.ceil(count / block) : count))
  const isOne = scale.count === 1 && scale.shape.length <= 1
  const fits =
    block === 0
      ? isOne || (scale.shape.length === 1 && scale.count === size)
      : `${scale.shape}` === `${blocked}`
  return (
    isCode(codes.dtype) &&
    (isHalf(scale.dtype) || scale.dtype === 'f32') &&
    fits &&
    (!zero || (zero.dtype === codes.dtype && zero.count === scale.count))
  )
}

/** Which scale element i of the codes has. */
function groupsOf({ codes: { shape }, scale, axis, block }: ScaledCodes): (i: number) => number {
  if (scale.count === 1) return () => 0
  const [size, inner] = [shape[axis]!, numel(shape.slice(axis + 1))]
  if (block === 0) return i => Math.floor(i / inner) % size
  const blocks = Math.ceil(size / block)
  return i => {
    const at = Math.floor(i / inner)
    return (Math.floor(at / size) * blocks + Math.floor((at % size) / block)) * inner + (i % inner)
  }
}

const floatsOf = ({ dtype, data }: Constant): Float32Array => decode(data as DTypeArray, dtype as DType)

/** The codes as numbers. */
function numbersOf(codes: Constant): ArrayLike<number> {
  const { dtype } = codes
  if (isDType(dtype)) return floatsOf(codes)
  const data = unpackedData(codes) as ArrayLike<number>
  if (elementBits[dtype] >= 8 || isUnsigned(dtype)) return data
  const [, high] = rangeOf(dtype)
  return Int8Array.from(data, code => (code > high ? code - 2 * (high + 1) : code))
}

/** The numbers that the codes stand for, in f32. */
export function decodeScaled(parts: ScaledCodes): Float32Array {
  const [codes, scale, groupOf] = [numbersOf(parts.codes), floatsOf(parts.scale), groupsOf(parts)]
  const zero = parts.zero && numbersOf(parts.zero)
  return Float32Array.from({ length: codes.length }, (_, i) => {
    const group = groupOf(i)
    return Math.fround(codes[i]! - (zero?.[group] ?? 0)) * scale[group]!
  })
}

/** Scales and zero points. */
interface Steps {
  readonly scale: Float32Array
  readonly zero: Float64Array
}

/** Numbers, and the group that each belongs to. */
interface Grouped {
  readonly values: Float32Array
  readonly groupOf: (i: number) => number
}

/**
 * Codes, scales and zero points of new numbers, in the types and shapes of the old ones. A group keeps its scale unless
 * the one that its new range suggests has a smaller error, so that what has not changed gets its old codes.
 *
 * @param values - as many as there are codes, finite
 */
export function encodeScaled(parts: ScaledCodes, values: Float32Array): ScaledCodes {
  const { codes, scale, zero } = parts
  const grouped = { values, groupOf: groupsOf(parts) }
  const old: Steps = {
    scale: floatsOf(scale),
    zero: Float64Array.from(zero ? numbersOf(zero) : new Uint8Array(scale.count)),
  }
  const next = stepsFor(parts, old, grouped)
  const [error, nextError] = [old, next].map(steps => errorsOf(codes.dtype, steps, grouped))
  for (const [group, value] of error!.entries()) {
    if (nextError![group]! < value) continue
    next.scale[group] = old.scale[group]!
    next.zero[group] = old.zero[group]!
  }
  return {
    ...parts,
    codes: constantOfNumbers(codes, codesOf(codes.dtype, next, grouped)),
    scale: constantOfNumbers(scale, next.scale),
    ...(zero && { zero: constantOfNumbers(zero, next.zero) }),
  }
}

/** What the range of the numbers of each group suggests. Zero points in the middle, or that are not there, stay. */
function stepsFor(
  { codes: { dtype }, scale, zero }: ScaledCodes,
  old: Steps,
  { values, groupOf }: Grouped,
): Steps {
  const [low, high] = [new Float32Array(scale.count), new Float32Array(scale.count)]
  for (const [i, value] of values.entries()) {
    const group = groupOf(i)
    low[group] = Math.min(low[group]!, value)
    high[group] = Math.max(high[group]!, value)
  }
  const [least, most] = rangeOf(dtype)
  const middle = isDType(dtype) ? 0 : (least + most + 1) / 2
  const stays = !zero || old.zero.every(point => point === middle)
  const exact = low.map((lowest, group) => {
    const point = old.zero[group]!
    const below = point > least ? lowest / (least - point) : 0
    return stays ? Math.max(high[group]! / (most - point), below) : (high[group]! - lowest) / (most - least)
  })
  const rounded = floatsOf(constantOfNumbers(scale, exact))
  const points = old.zero.map((point, group) =>
    stays ? point : clamp(roundHalfEven(least - low[group]! / rounded[group]!), least, most),
  )
  return { scale: rounded, zero: points }
}

/** The squared errors of each group. */
function errorsOf(dtype: ElementType, { scale, zero }: Steps, { values, groupOf }: Grouped): Float64Array {
  const errors = new Float64Array(scale.length)
  for (const [i, code] of codesOf(dtype, { scale, zero }, { values, groupOf }).entries()) {
    const group = groupOf(i)
    errors[group]! += (Math.fround(code - zero[group]!) * scale[group]! - values[i]!) ** 2
  }
  return errors
}

/** The codes of numbers, as numbers. */
function codesOf(
  dtype: ElementType,
  { scale, zero }: Steps,
  { values, groupOf }: Grouped,
): Float32Array | Float64Array {
  const quotients = values.map((value, i) => value / scale[groupOf(i)]!)
  if (isDType(dtype)) return decode(encode(quotients, dtype), dtype)
  const [least, most] = rangeOf(dtype)
  return Float64Array.from(quotients, (quotient, i) =>
    clamp(roundHalfEven(quotient) + zero[groupOf(i)]!, least, most),
  )
}

/** A constant of the type and shape of another one. */
function constantOfNumbers({ dtype, shape }: Constant, numbers: ArrayLike<number>): Constant {
  if (isDType(dtype)) return Constant.from(dtype, shape, encode(Float32Array.from(numbers), dtype))
  const bits = elementBits[dtype]
  if (bits >= 8) {
    const array = new (elementArrayOf(dtype))(numbers.length) as ElementArray as Int32Array
    array.set(numbers)
    return Constant.from(dtype as NumericType, shape, array)
  }
  const packed = new Uint8Array(Math.ceil((numbers.length * bits) / 8))
  const perByte = 8 / bits
  for (let i = 0; i < numbers.length; i++) {
    packed[Math.floor(i / perByte)]! |= (numbers[i]! & ((1 << bits) - 1)) << (bits * (i % perByte))
  }
  return Constant.from(dtype as NumericType, shape, packed)
}
