// known-values.ts: arithmetic on the elements of small tensors, which shapes are computed from.
import { type ElementType, isHalf, isUnsigned, isWideFloat, isWideInteger } from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { areNumbers, derive, deriveFloat, isSize, type Size, sameSize } from '../../core/size.js'
import { decode } from '../../precision/casts.js'
import type { Constant } from '../constant.js'
import type { SymbolicDimension, ValueType } from '../graph.js'
import { type KnownValue, maxKnownElements } from './context.js'
import type { Shape } from './dimensions.js'
import type { ValueRule } from './row.js'

/** Whether elements are few, and of a type whose rounding is followed. */
export const isFollowed = ({ elements }: KnownValue, type: ValueType | undefined): boolean =>
  elements.length <= maxKnownElements && !isHalf(dtypeOf(type))

/** Floats that are followed: scales of a Resize, but not weights. */
export const maxKnownFloats = 64

/** The elements of a small constant of numbers; undefined for others. */
export function knownConstant(constant: Constant): KnownValue | undefined {
  const { dtype, shape } = constant
  const limit = isWideFloat(dtype)
    ? maxKnownFloats
    : dtype === 'bool' || isWideInteger(dtype)
      ? maxKnownElements
      : -1
  if (constant.count > limit) return undefined
  const data = isHalf(dtype) ? decode(constant.data as Uint16Array, dtype) : constant.data
  return { shape, elements: Array.from(data as ArrayLike<number | bigint>, Number) }
}

/** The shape of a type, when all sizes are numbers and there are few elements. */
export function smallShape(type: ValueType | undefined): number[] | undefined {
  const shape: Shape | undefined = type?.kind === 'tensor' ? type.shape : undefined
  if (!shape?.every(dim => typeof dim === 'number')) return undefined
  const sizes = shape as readonly number[]
  return numel(sizes) <= maxKnownElements ? [...sizes] : undefined
}

export function dtypeOf(type: ValueType | undefined): ElementType {
  return type?.kind === 'tensor' ? type.dtype : 'i64'
}

/** Rounds a result as its element type does; null where that type is not followed. */
export function store(value: number, dtype: ElementType): number | null {
  if (dtype === 'f32') return Math.fround(value)
  if (dtype === 'f64') return value
  if (dtype === 'bool') return value === 0 ? 0 : 1
  if (!isWideInteger(dtype) || !Number.isFinite(value)) return null
  const bits = Number(dtype.slice(1))
  const integer = Math.trunc(value)
  const [low, high] = isUnsigned(dtype) ? [0, 2 ** bits] : [-(2 ** (bits - 1)), 2 ** (bits - 1)]
  return integer >= low && integer <= high ? integer : null
}

/** The element of `known`, broadcast to `shape`, at a flat index. */
export function broadcastElement(
  { shape: own, elements }: KnownValue,
  shape: readonly number[],
  flat: number,
): SymbolicDimension {
  let index = 0
  let stride = 1
  let rest = flat
  for (let i = 1; i <= shape.length; i++) {
    const size = shape[shape.length - i]!
    const position = rest % size
    rest = Math.floor(rest / size)
    if (i > own.length) continue
    const width = own[own.length - i]!
    index += (width === 1 ? 0 : position) * stride
    stride *= width
  }
  return elements[index] ?? null
}

/** Applies a function to corresponding elements of the inputs. */
export const mapped =
  (compute: (elements: readonly SymbolicDimension[], dtype: ElementType) => SymbolicDimension): ValueRule =>
  (ctx, [type]) => {
    const shape = smallShape(type)
    const inputs = ctx.node.inputs.map((_, i) => ctx.known(i))
    if (!shape || !inputs.some(input => input)) return []
    const count = numel(shape)
    const elements = Array.from({ length: count }, (_, flat) => {
      const operands = inputs.map(input => (input ? broadcastElement(input, shape, flat) : null))
      const result = compute(operands, dtypeOf(ctx.type(0)))
      return typeof result === 'number' ? store(result, dtypeOf(type)) : result
    })
    return elements.every(element => element === null) ? [] : [{ shape, elements }]
  }

/**
 * A function of elements; `neutral` names the second operand that leaves a name as it is.
 * @param name - of the function
 */
export const numeric = (
  name: string,
  compute: (...numbers: number[]) => number,
  neutral?: number,
): ValueRule =>
  mapped((elements, dtype) => {
    const [a, b] = elements
    if (neutral !== undefined && b === neutral) return a!
    return elements.every(isSize) ? computed(name, compute, dtype, elements) : null
  })

/** A function of known elements of a type, rounded as that does where they are no numbers yet. */
export function computed(
  name: string,
  compute: (...numbers: number[]) => number,
  dtype: ElementType,
  elements: readonly Size[],
): SymbolicDimension {
  if (areNumbers(elements)) return compute(...elements)
  if (isWideInteger(dtype)) return derive(name, compute, ...elements)
  if (!isWideFloat(dtype) || isHalf(dtype)) return null
  const rounded = (...numbers: number[]): number => store(compute(...numbers), dtype) ?? Number.NaN
  return deriveFloat(`${name} ${dtype}`, rounded, ...elements)
}

/** An element of one type as one of another. */
export function castElement(
  element: SymbolicDimension,
  from: ElementType,
  to: ElementType,
): SymbolicDimension {
  if (typeof element === 'number' || !isSize(element)) return element
  if (to === 'bool') return sameSize(element, 0) ? 0 : 1
  if (isWideInteger(to)) return isWideInteger(from) ? element : derive('trunc', Math.trunc, element)
  return computed('cast', number => number, to, [element])
}

/** A tensor of `shape` whose element at a position is that of `known` at another one. */
export function remap(
  known: KnownValue,
  shape: readonly number[],
  source: (position: readonly number[]) => readonly number[],
): KnownValue {
  const count = numel(shape)
  const elements = Array.from({ length: count }, (_, flat) => {
    const position = [...shape]
    let rest = flat
    for (let i = shape.length - 1; i >= 0; i--) {
      position[i] = rest % shape[i]!
      rest = Math.floor(rest / shape[i]!)
    }
    return known.elements[source(position).reduce((index, at, i) => index * known.shape[i]! + at, 0)]!
  })
  return { shape, elements }
}
