// elements.ts: elements of every type as numbers or, integers, as bigints; mirrors native/backend/cpu/elements.h.
import { type ElementArray, elementBits } from '../../core/dtype.js'
import {
  bitsFloat,
  e2m1,
  e4m3fnuz,
  e5m2fnuz,
  type FloatFormat,
  floatBits,
  floatFormats,
} from '../../precision/float-formats.js'
import type { KernelType } from '../precision-args.js'

/** Whether elements are integers, bool among them. */
export function isInteger(dtype: KernelType): boolean {
  return /^([iu]\d+|bool)$/.test(dtype)
}

/** Whether an integer type has negative numbers. */
const isSigned = (dtype: KernelType): boolean => dtype.startsWith('i')

const infinityBits = 0x7f800000

/** E8M0: a power of two, 2^-127 among them, which is a subnormal f32. */
const e8m0 = {
  decode: (code: number): number => (code === 0xff ? Number.NaN : 2 ** (code - 127)),
  encode(value: number, saturate: boolean, rounding: 'up' | 'down' | 'nearest'): number {
    const bits = floatBits(value) & 0x7fffffff
    if (bits > infinityBits) return 0xff
    const [exponent, fraction] = [bits >>> 23, bits & 0x7fffff]
    const exact = exponent === 0 ? 0x400000 : 0
    const half = exponent === 0 ? 0x600000 : 0x400000
    const up = rounding === 'up' ? fraction > exact : rounding === 'nearest' && fraction >= half
    return Math.min(exponent + Number(up), saturate ? 0xfe : 0xff)
  },
}

const formats: Partial<Record<KernelType, FloatFormat>> = {
  ...floatFormats,
  f4: e2m1,
  f8_e4m3fnuz: e4m3fnuz,
  f8_e5m2fnuz: e5m2fnuz,
}

/** What reads the elements of a float type. */
export function floatReader(dtype: KernelType, array: ElementArray): (i: number) => number {
  const elements = array as Float64Array
  if (dtype === 'f32' || dtype === 'f64') return i => elements[i]!
  if (dtype === 'f8_e8m0') return i => e8m0.decode(elements[i]!)
  const { decode } = formats[dtype]!
  return i => bitsFloat(decode(elements[i]!))
}

/** What reads the elements of an integer type. */
export function integerReader(dtype: KernelType, array: ElementArray): (i: number) => bigint {
  const elements = array as Int32Array | BigInt64Array
  const bits = elementBits[dtype]
  if (bits < 8 && isSigned(dtype)) return i => BigInt.asIntN(bits, BigInt(elements[i]!))
  return i => BigInt(elements[i]!)
}

/** How numbers become elements of another type. */
export interface Conversion {
  /** See CastArgs. */
  readonly saturate?: boolean
  /** See CastArgs. */
  readonly rounding?: 'up' | 'down' | 'nearest'
}

/** What writes elements of a float type. */
export function floatWriter(
  dtype: KernelType,
  array: ElementArray,
  { saturate = false, rounding = 'up' }: Conversion = {},
): (i: number, value: number) => void {
  const elements = array as Float64Array
  if (dtype === 'f32' || dtype === 'f64') {
    return (i, value) => {
      elements[i] = value
    }
  }
  if (dtype === 'f8_e8m0') {
    return (i, value) => {
      elements[i] = e8m0.encode(value, saturate, rounding)
    }
  }
  const { encode, limit } = formats[dtype]!
  const largest = limit(saturate)
  return (i, value) => {
    // f4 has no NaN.
    elements[i] = dtype === 'f4' && Number.isNaN(value) ? 0 : encode(floatBits(value), largest)
  }
}

/** What writes elements of an integer type; integers out of range wrap around unless `saturate`. */
export function integerWriter(
  dtype: KernelType,
  array: ElementArray,
  { saturate = false }: Conversion = {},
): (i: number, value: bigint) => void {
  const elements = array as Int32Array & BigInt64Array
  const bits = elementBits[dtype]
  const store = (i: number, value: bigint): void => {
    const held: bigint | number = bits === 64 ? value : Number(value)
    elements[i] = held as never
  }
  if (dtype === 'bool') return (i, value) => store(i, BigInt(value !== 0n))
  const [least, most] = integerRange(dtype)
  const wrap = isSigned(dtype) && bits >= 8 ? BigInt.asIntN : BigInt.asUintN
  return (i, value) => {
    const kept = !saturate ? value : value < least ? least : value > most ? most : value
    store(i, wrap(bits, kept))
  }
}

/** The least and the largest number of an integer type. */
export function integerRange(dtype: KernelType): readonly [least: bigint, most: bigint] {
  const bits = dtype === 'bool' ? 1n : BigInt(elementBits[dtype])
  return isSigned(dtype) ? [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n] : [0n, (1n << bits) - 1n]
}

/** A float as an integer of 64 bits: its fraction is dropped, NaN is 0, and what is beyond becomes the nearest. */
export function toInteger(value: number, unsigned: boolean): bigint {
  if (Number.isNaN(value)) return 0n
  const most = unsigned ? 2 ** 64 : 2 ** 63
  if (value >= most) return unsigned ? (1n << 64n) - 1n : (1n << 63n) - 1n
  if (value <= -(2 ** 63)) return -(1n << 63n)
  return BigInt(Math.trunc(value))
}
