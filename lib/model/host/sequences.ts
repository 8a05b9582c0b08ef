// sequences.ts: lists of tensors, and values that may be missing.
import { SparkError } from '../../core/errors.js'
import { describeNode, intOf } from '../../graph/attributes.js'
import { elementTypeOf } from '../../graph/element-types.js'
import type { Node } from '../../graph/graph.js'
import { axisOf } from '../../plan/views.js'
import {
  copied,
  expectSequence,
  expectTensor,
  type HostSequence,
  type HostTensor,
  type HostValue,
  hostIntegers,
  hostTensor,
  numbersOf,
} from '../values.js'
import { concatAlong, sliceAlong, stackAlong } from './axes.js'
import type { HostOperator } from './table.js'

const sequence = (dtype: HostSequence['dtype'], items: readonly HostTensor[]): HostSequence => ({
  kind: 'sequence',
  dtype,
  items,
})

/** The index that an input names, counted from the front; `end` is the last one allowed. */
function indexIn(
  node: Node,
  value: HostValue | undefined,
  fallback: number,
  end: number,
  length: number,
): number {
  const given = value ? numbersOf(expectTensor(node, value))[0]! : fallback
  const index = given < 0 ? given + length : given
  if (index >= 0 && index <= end) return index
  throw new SparkError('ERR_RANGE', `${describeNode(node)}: index ${given} of a sequence of ${length}`)
}

const construct: HostOperator = ({ node, inputs }) => {
  // A tensor may lie in memory that the next run overwrites; sequences own what they hold.
  const items = inputs.map(value => copied(expectTensor(node, value)))
  return [sequence(items[0]?.dtype ?? 'f32', items)]
}

const at: HostOperator = ({ node, inputs }) => {
  const { items } = expectSequence(node, inputs[0])
  return [items[indexIn(node, inputs[1], 0, items.length - 1, items.length)]!]
}

const insert: HostOperator = ({ node, inputs }) => {
  const { items } = expectSequence(node, inputs[0])
  const added = copied(expectTensor(node, inputs[1]))
  const index = indexIn(node, inputs[2], items.length, items.length, items.length)
  return [sequence(added.dtype, [...items.slice(0, index), added, ...items.slice(index)])]
}

const erase: HostOperator = ({ node, inputs }) => {
  const { items, dtype } = expectSequence(node, inputs[0])
  const index = indexIn(node, inputs[1], items.length - 1, items.length - 1, items.length)
  return [
    sequence(
      dtype,
      items.filter((_, i) => i !== index),
    ),
  ]
}

/** Sizes of the pieces of `size` elements: those given, or as many of the one given as fit, and the rest. */
function piecesOf(node: Node, given: HostTensor | undefined, size: number): number[] {
  if (given && given.shape.length > 0) {
    const sizes = numbersOf(given)
    const total = sizes.reduce((sum, length) => sum + length, 0)
    if (total === size && sizes.every(length => length >= 0)) return sizes
    const what = `pieces of [${sizes.join(', ')}] do not add up to ${size}`
    throw new SparkError('ERR_SHAPE', `${describeNode(node)}: ${what}`)
  }
  const step = given ? numbersOf(given)[0]! : 1
  if (step > 0)
    return Array.from({ length: Math.ceil(size / step) }, (_, i) => Math.min(step, size - i * step))
  throw new SparkError('ERR_SHAPE', `${describeNode(node)}: pieces of ${step} elements`)
}

const split: HostOperator = ({ node, inputs }) => {
  const whole = expectTensor(node, inputs[0])
  const axis = axisOf(intOf(node, 'axis'), whole.shape.length)
  const given = inputs[1] && expectTensor(node, inputs[1])
  const sizes = piecesOf(node, given, whole.shape[axis]!)
  const squeeze = !given && intOf(node, 'keepdims') === 0
  let start = 0
  const parts = sizes.map(length => {
    const part = sliceAlong(whole, axis, [start, start + length], squeeze)
    start += length
    return part
  })
  return [sequence(whole.dtype, parts)]
}

const concat: HostOperator = ({ node, inputs }) => {
  const { items } = expectSequence(node, inputs[0])
  const [first] = items
  if (!first) throw new SparkError('ERR_SHAPE', `${describeNode(node)}: the sequence is empty`)
  const join = intOf(node, 'new_axis') ? stackAlong : concatAlong
  const rank = first.shape.length + intOf(node, 'new_axis')
  return [join(items, axisOf(intOf(node, 'axis'), rank))]
}

const present: HostOperator = ({ inputs: [value] }) => [
  hostTensor('bool', [], Uint8Array.of(value && value.kind !== 'nothing' ? 1 : 0)),
]

const getElement: HostOperator = ({ node, inputs: [value] }) => {
  if (value && value.kind !== 'nothing') return [value]
  throw new SparkError('ERR_ARGUMENT', `${describeNode(node)}: the optional value is not there`)
}

/** Operators on sequences and optional values. */
export const sequences: Readonly<Record<string, HostOperator>> = {
  SequenceConstruct: construct,
  SequenceEmpty: ({ node }) => [sequence(elementTypeOf(intOf(node, 'dtype'), 'dtype'), [])],
  SequenceAt: at,
  SequenceInsert: insert,
  SequenceErase: erase,
  SequenceLength: ({ node, inputs }) => [hostIntegers([], [expectSequence(node, inputs[0]).items.length])],
  SplitToSequence: split,
  ConcatFromSequence: concat,
  Optional: ({ inputs: [value] }) => [value ?? { kind: 'nothing' }],
  OptionalHasElement: present,
  OptionalGetElement: getElement,
  Identity: ({ inputs: [value] }) => [value!],
}
