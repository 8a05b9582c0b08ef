// values.ts: the elements of small tensors that shapes are computed from, as far as they are known.
import {
  type ElementType,
  isHalf,
  isInteger,
  isUnsigned,
  isWideFloat,
  isWideInteger,
} from '../../core/dtype.js'
import { numel } from '../../core/shape.js'
import { decode } from '../../precision/casts.js'
import { graphOf, tensorOf } from '../attributes.js'
import type { Constant } from '../constant.js'
import type { Dimension, ValueType } from '../graph.js'
import { type Call, type KnownValue, maxKnownElements } from './call.js'
import { type Shape, unknownShape } from './dimensions.js'
import { sliceBounds } from './layout.js'

/** Elements of the outputs of a node; `types` are the types of the outputs. */
type ValueRule = (
  call: Call,
  types: readonly (ValueType | undefined)[],
) => readonly (KnownValue | undefined)[]

/** What is known of the outputs of a node. */
export const valuesOf: ValueRule = (call, types) => {
  const rule = Object.hasOwn(valueRules, call.node.op) ? valueRules[call.node.op]! : undefined
  return rule
    ? rule(call, types).map((known, i) => (known && isFollowed(known, types[i]) ? known : undefined))
    : []
}

/** Whether elements are few, and of a type whose rounding is followed. */
const isFollowed = ({ elements }: KnownValue, type: ValueType | undefined): boolean =>
  elements.length <= maxKnownElements && !isHalf(dtypeOf(type))

/** Floats that are followed: scales of a Resize, but not weights. */
const maxKnownFloats = 64

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
function smallShape(type: ValueType | undefined): number[] | undefined {
  const shape: Shape | undefined = type?.kind === 'tensor' ? type.shape : undefined
  if (!shape?.every(dim => typeof dim === 'number')) return undefined
  const sizes = shape as readonly number[]
  return numel(sizes) <= maxKnownElements ? [...sizes] : undefined
}

function dtypeOf(type: ValueType | undefined): ElementType {
  return type?.kind === 'tensor' ? type.dtype : 'i64'
}

/** Rounds a result as its element type does; null where that type is not followed. */
function store(value: number, dtype: ElementType): number | null {
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
function broadcastElement(
  { shape: own, elements }: KnownValue,
  shape: readonly number[],
  flat: number,
): Dimension {
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
const mapped =
  (compute: (elements: readonly Dimension[], dtype: ElementType) => Dimension): ValueRule =>
  (call, [type]) => {
    const shape = smallShape(type)
    const inputs = call.node.inputs.map((_, i) => call.known(i))
    if (!shape || !inputs.some(input => input)) return []
    const count = numel(shape)
    const elements = Array.from({ length: count }, (_, flat) => {
      const operands = inputs.map(input => (input ? broadcastElement(input, shape, flat) : null))
      const result = compute(operands, dtypeOf(call.type(0)))
      return typeof result === 'number' ? store(result, dtypeOf(type)) : result
    })
    return elements.every(element => element === null) ? [] : [{ shape, elements }]
  }

/** A function of numbers; `neutral` names the second operand that leaves a name as it is. */
const numeric = (compute: (...numbers: number[]) => number, neutral?: number): ValueRule =>
  mapped((elements, _) => {
    if (elements.every(element => typeof element === 'number')) return compute(...(elements as number[]))
    const [a, b] = elements
    if (neutral !== undefined && b === neutral) return a!
    return null
  })

const commutative = (compute: (a: number, b: number) => number, neutral: number): ValueRule =>
  mapped(elements => {
    const names = elements.filter(element => element !== neutral)
    if (names.length === 1) return names[0]!
    return elements.every(element => typeof element === 'number')
      ? (elements as number[]).reduce(compute)
      : null
  })

const compared = (compute: (a: number, b: number) => boolean): ValueRule =>
  numeric((a, b) => Number(compute(a!, b!)))

/** The first input's elements in the shape of the output. */
const relabelled: ValueRule = (call, [type]) => {
  const [known, shape] = [call.known(0), smallShape(type)]
  return known && shape ? [{ shape, elements: known.elements }] : []
}

/** A tensor of `shape` whose element at a position is that of `known` at another one. */
function remap(
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

const gather: ValueRule = (call, [type]) => {
  const [data, indices, shape] = [call.known(0), call.numbers(1), smallShape(type)]
  const picked = call.known(1)?.shape
  if (!data || !indices || !picked || !shape) return []
  const axis = call.axis(call.int('axis', 0), data.shape.length)
  const size = data.shape[axis]!
  const wrong = indices.find(index => index < -size || index >= size)
  if (wrong !== undefined) throw call.fail(`index ${wrong} is outside of ${size} elements`)
  return [
    remap(data, shape, position => {
      const inner = position.slice(axis, axis + picked.length)
      const index = indices[inner.reduce((flat, at, i) => flat * picked[i]! + at, 0)]!
      return [
        ...position.slice(0, axis),
        index < 0 ? index + size : index,
        ...position.slice(axis + picked.length),
      ]
    }),
  ]
}

const slice: ValueRule = (call, [type]) => {
  const [data, shape, starts, ends] = [call.known(0), smallShape(type), call.numbers(1), call.numbers(2)]
  const axes = call.has(3) ? call.numbers(3) : starts?.map((_, i) => i)
  const steps = call.has(4) ? call.numbers(4) : starts?.map(() => 1)
  if (!data || !shape || !starts || !ends || !axes || !steps) return []
  const moves = data.shape.map(() => [0, 1] as [number, number])
  for (const [i, axis] of axes.entries()) {
    const at = call.axis(axis, data.shape.length)
    const step = steps[i]!
    moves[at] = [sliceBounds(data.shape[at]!, starts[i]!, ends[i]!, step)[0], step]
  }
  return [remap(data, shape, position => position.map((at, i) => moves[i]![0] + at * moves[i]![1]))]
}

const transpose: ValueRule = (call, [type]) => {
  const [data, shape] = [call.known(0), smallShape(type)]
  if (!data || !shape) return []
  const perm = call.ints('perm') ?? data.shape.map((_, i) => data.shape.length - 1 - i)
  return [remap(data, shape, position => data.shape.map((_, axis) => position[perm.indexOf(axis)]!))]
}

const concat: ValueRule = (call, [type]) => {
  const shape = smallShape(type)
  if (!shape || shape.length === 0 || call.axis(call.int('axis', 0), shape.length) !== 0) return []
  const parts = call.node.inputs.map((_, i) => {
    const known = call.known(i)?.elements
    const sizes = smallShape(call.type(i))
    return known ?? (sizes && unknownShape(numel(sizes)))
  })
  return parts.every(part => part) ? [{ shape, elements: parts.flatMap(part => part!) }] : []
}

const split: ValueRule = (call, types) => {
  const data = call.known(0)
  if (data?.shape.length !== 1) return []
  let start = 0
  return types.map(type => {
    const shape = smallShape(type)
    if (!shape) return undefined
    start += shape[0]!
    return { shape, elements: data.elements.slice(start - shape[0]!, start) }
  })
}

const reduce =
  (compute: (a: number, b: number) => number): ValueRule =>
  (call, [type]) => {
    const [numbers, shape] = [call.numbers(0), smallShape(type)]
    if (!numbers?.length || !shape || shape.some(size => size !== 1)) return []
    return [{ shape, elements: [numbers.reduce(compute)] }]
  }

const shapeValue: ValueRule = (call, [type]) => {
  const [shape, size] = [call.shape(0), smallShape(type)]
  if (!shape || !size) return []
  const [first] = sliceBounds(shape.length, call.int('start', 0), shape.length, 1)
  return [{ shape: size, elements: shape.slice(first, first + size[0]!) }]
}

const filled: ValueRule = (call, [type]) => {
  const shape = smallShape(type)
  const value = tensorOf(call.node, 'value')
  const element = value ? knownConstant(value)?.elements[0] : 0
  if (!shape || element === undefined) return []
  return [{ shape, elements: Array<Dimension>(numel(shape)).fill(element) }]
}

const range: ValueRule = (call, [type]) => {
  const [shape, start, delta] = [smallShape(type), call.numbers(0)?.[0], call.numbers(2)?.[0]]
  if (!shape || start === undefined || delta === undefined) return []
  return [{ shape, elements: Array.from({ length: shape[0]! }, (_, i) => start + i * delta) }]
}

/** Division of integers rounds towards 0. */
const divide: ValueRule = mapped(([a, b], dtype) => {
  if (b === 1) return a!
  if (typeof a !== 'number' || typeof b !== 'number') return null
  if (isInteger(dtype)) return b === 0 ? null : Math.trunc(a / b)
  return a / b
})

const modulo: ValueRule = (call, types) =>
  numeric((a, b) => (call.int('fmod', 0) === 1 || b === 0 ? a! % b! : a! - Math.floor(a! / b!) * b!))(
    call,
    types,
  )

/** The outputs of the branch that is taken, which has been inferred before. */
const conditional: ValueRule = call => {
  const taken = call.numbers(0)?.[0]
  if (taken === undefined) return []
  const branch = graphOf(call.node, taken ? 'then_branch' : 'else_branch')
  return branch?.outputs.map(({ name }) => call.factOf(name).known) ?? []
}

const valueRules: Readonly<Record<string, ValueRule>> = {
  If: conditional,
  Shape: shapeValue,
  Size: (call, _) => {
    const sizes = call.shape(0)
    return sizes?.every(dim => typeof dim === 'number') ? [{ shape: [], elements: [numel(sizes)] }] : []
  },
  Constant: call => {
    const value = tensorOf(call.node, 'value')
    return value ? [knownConstant(value)] : []
  },
  ConstantOfShape: filled,
  Range: range,
  Identity: relabelled,
  Reshape: relabelled,
  Squeeze: relabelled,
  Unsqueeze: relabelled,
  Flatten: relabelled,
  Transpose: transpose,
  Cast: mapped(([a]) => a!),
  CastLike: mapped(([a]) => a!),
  Expand: (call, [type]) => {
    const [known, shape] = [call.known(0), smallShape(type)]
    if (!known || !shape) return []
    const count = numel(shape)
    return [
      { shape, elements: Array.from({ length: count }, (_, flat) => broadcastElement(known, shape, flat)) },
    ]
  },
  Gather: gather,
  Slice: slice,
  Concat: concat,
  Split: split,
  Add: commutative((a, b) => a + b, 0),
  Mul: mapped(([a, b]) => {
    if (a === 0 || b === 0) return 0
    if (a === 1) return b!
    if (b === 1) return a!
    return typeof a === 'number' && typeof b === 'number' ? a * b : null
  }),
  Sub: mapped(([a, b]) => {
    if (b === 0) return a!
    return typeof a === 'number' && typeof b === 'number' ? a - b : null
  }),
  Div: divide,
  Mod: modulo,
  Pow: numeric((a, b) => a! ** b!, 1),
  Max: numeric(Math.max),
  Min: numeric(Math.min),
  Neg: numeric(a => -a!),
  Abs: numeric(Math.abs),
  Sign: numeric(Math.sign),
  Floor: numeric(Math.floor),
  Ceil: numeric(Math.ceil),
  Sqrt: numeric(Math.sqrt),
  Not: numeric(a => Number(a === 0)),
  And: numeric((a, b) => Number(a !== 0 && b !== 0)),
  Or: numeric((a, b) => Number(a !== 0 || b !== 0)),
  Equal: mapped(([a, b]) => {
    if (a !== null && a === b) return 1
    return typeof a === 'number' && typeof b === 'number' ? 0 : null
  }),
  Less: compared((a, b) => a < b),
  LessOrEqual: compared((a, b) => a <= b),
  Greater: compared((a, b) => a > b),
  GreaterOrEqual: compared((a, b) => a >= b),
  Where: mapped(([condition, a, b]) => (typeof condition !== 'number' ? null : condition ? a! : b!)),
  ReduceProd: reduce((a, b) => a * b),
  ReduceSum: reduce((a, b) => a + b),
  ReduceMax: reduce(Math.max),
  ReduceMin: reduce(Math.min),
}
