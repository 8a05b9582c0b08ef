// sequence.ts: types of sequences and optional values.
import type { ValueType } from '../graph.js'
import { type Rule, tensorOrUnknown } from './context.js'
import { commonType } from './control.js'
import { unknownShape } from './dimensions.js'
import { type OperatorTable, sameAsFirst } from './row.js'

function elementOf(type: ValueType | undefined): ValueType | undefined {
  return type?.kind === 'sequence' || type?.kind === 'optional' ? type.element : type
}

const sequence = (element: ValueType | undefined): ValueType | undefined =>
  element && { kind: 'sequence', element }

const splitToSequence: Rule = ctx => {
  const shape = ctx.shape(0)
  const axis = shape && ctx.axis(ctx.int('axis'), shape.length)
  const whole = ctx.has(1) || ctx.int('keepdims') === 1
  const piece = shape?.flatMap((dim, i) => (i !== axis ? [dim] : whole ? [ctx.has(1) ? null : 1] : []))
  return [sequence(tensorOrUnknown(ctx.dtype(0), piece))]
}

const concatFromSequence: Rule = ctx => {
  const element = elementOf(ctx.type(0))
  if (element?.kind !== 'tensor') return []
  const rank = element.shape && element.shape.length + ctx.int('new_axis')
  return [tensorOrUnknown(element.dtype, rank === undefined ? undefined : unknownShape(rank))]
}

const construct: Rule = ctx => {
  const [first, ...others] = ctx.node.inputs.map((_, i) => ctx.type(i))
  if (ctx.node.inputs.length === 0) throw ctx.fail('has no inputs; SequenceEmpty makes an empty sequence')
  return [sequence(others.reduce(commonType, first))]
}

const optional: Rule = ctx => {
  const element = ctx.type(0)
  return [element && { kind: 'optional', element }]
}

/** Rows of sequences and optional values. */
export const sequences: OperatorTable = {
  '': {
    SequenceConstruct: { shape: construct },
    SequenceEmpty: {
      shape: ctx => [sequence(tensorOrUnknown(ctx.typeAttribute('dtype', 'f32'), undefined))],
    },
    SequenceInsert: {
      shape: ctx => [sequence(commonType(elementOf(ctx.type(0)), ctx.type(1)))],
      integers: [2],
    },
    SequenceErase: { shape: sameAsFirst, integers: [1] },
    SequenceAt: { shape: ctx => [elementOf(ctx.type(0))], integers: [1] },
    SequenceLength: { shape: () => [tensorOrUnknown('i64', [])] },
    SplitToSequence: { shape: splitToSequence, integers: [1] },
    ConcatFromSequence: { shape: concatFromSequence },
    OptionalHasElement: { shape: () => [tensorOrUnknown('bool', [])] },
    OptionalGetElement: { shape: ctx => [elementOf(ctx.type(0))] },
    Optional: { shape: optional },
  },
}
