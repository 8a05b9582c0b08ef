// sequence.ts: types of sequences and optional values.
import type { ValueType } from '../graph.js'
import { type Rule, tensorOrUnknown } from './call.js'
import { commonType } from './control.js'
import { unknownShape } from './dimensions.js'
import { type OperatorTable, sameAsFirst } from './row.js'

function elementOf(type: ValueType | undefined): ValueType | undefined {
  return type?.kind === 'sequence' || type?.kind === 'optional' ? type.element : type
}

const sequence = (element: ValueType | undefined): ValueType | undefined =>
  element && { kind: 'sequence', element }

const splitToSequence: Rule = call => {
  const shape = call.shape(0)
  const axis = shape && call.axis(call.int('axis', 0), shape.length)
  const whole = call.has(1) || call.int('keepdims', 1) === 1
  const piece = shape?.flatMap((dim, i) => (i !== axis ? [dim] : whole ? [call.has(1) ? null : 1] : []))
  return [sequence(tensorOrUnknown(call.dtype(0), piece))]
}

const concatFromSequence: Rule = call => {
  const element = elementOf(call.type(0))
  if (element?.kind !== 'tensor') return []
  const rank = element.shape && element.shape.length + call.int('new_axis', 0)
  return [tensorOrUnknown(element.dtype, rank === undefined ? undefined : unknownShape(rank))]
}

const construct: Rule = call => [
  sequence(call.node.inputs.map((_, i) => call.type(i)).reduce((a, b) => commonType(a, b))),
]

const optional: Rule = call => {
  const element = call.type(0)
  return [element && { kind: 'optional', element }]
}

/** Rows of sequences and optional values. */
export const sequences: OperatorTable = {
  '': {
    SequenceConstruct: { shape: construct },
    SequenceEmpty: {
      shape: call => [sequence(tensorOrUnknown(call.typeAttribute('dtype', 'f32'), undefined))],
    },
    SequenceInsert: {
      shape: call => [sequence(commonType(elementOf(call.type(0)), call.type(1)))],
      integers: [2],
    },
    SequenceErase: { shape: sameAsFirst, integers: [1] },
    SequenceAt: { shape: call => [elementOf(call.type(0))], integers: [1] },
    SequenceLength: { shape: () => [tensorOrUnknown('i64', [])] },
    SplitToSequence: { shape: splitToSequence, integers: [1] },
    ConcatFromSequence: { shape: concatFromSequence },
    OptionalHasElement: { shape: () => [tensorOrUnknown('bool', [])] },
    OptionalGetElement: { shape: call => [elementOf(call.type(0))] },
    Optional: { shape: optional },
  },
}
