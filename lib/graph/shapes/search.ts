// search.ts: shapes of searches: largest elements, positions of elements, distinct elements.
import type { Dimension } from '../graph.js'
import { type Call, type Rule, tensorOrUnknown } from './call.js'
import { single } from './operands.js'
import { reduced } from './reduce.js'
import type { OperatorTable } from './row.js'
import { withDimension } from './slice.js'

const argument: Rule = call => {
  const axis = call.int('axis', 0)
  expectElements(call, axis, 1)
  return [tensorOrUnknown('i64', reduced(call, [axis], call.int('keepdims', 1) === 1))]
}

/** Refuses to look for more elements along an axis than there are. */
function expectElements(call: Call, axis: number, count: Dimension): void {
  const shape = call.shape(0)
  const size = shape?.[call.axis(axis, shape.length)]
  if (typeof size === 'number' && typeof count === 'number' && count > size)
    throw call.fail(`axis ${axis} has ${size} elements, but ${count} are wanted`)
}

const topK: Rule = call => {
  const shape = call.shape(0)
  const axis = shape && call.axis(call.int('axis', -1), shape.length)
  const k = call.known(1)?.elements[0] ?? null
  expectElements(call, call.int('axis', -1), k)
  const result = shape && withDimension(shape, axis!, k)
  return [tensorOrUnknown(call.dtype(0), result), tensorOrUnknown('i64', result)]
}

const nonZero: Rule = call => [tensorOrUnknown('i64', [call.shape(0)?.length ?? null, null])]

const unique: Rule = call => {
  const axis = call.int('axis', undefined)
  const shape = call.shape(0)
  const at = axis === undefined || !shape ? undefined : call.axis(axis, shape.length)
  const values = axis === undefined ? [null] : shape?.map((dim, i) => (i === at ? null : dim))
  const index = tensorOrUnknown('i64', [null])
  return [tensorOrUnknown(call.dtype(0), values), index, index, index]
}

/** Rows of searches. */
export const searches: OperatorTable = {
  '': {
    TopK: { shape: topK, check: single('k'), integers: [1] },
    ArgMax: { shape: argument },
    ArgMin: { shape: argument },
    NonZero: { shape: nonZero },
    Unique: { shape: unique },
  },
}
