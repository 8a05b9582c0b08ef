// reduce.ts: shapes of reductions, searches along an axis, and losses.
import { stringOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
import { type Call, type Rule, tensorOrUnknown } from './call.js'
import { type Shape, unknownShape } from './dimensions.js'
import { withDimension } from './layout.js'

/** Shape after reducing `axes` (all when undefined) of the first input. */
function reduced(call: Call, axes: readonly number[] | undefined, keep: boolean): Shape | undefined {
  const shape = call.shape(0)
  if (!shape) return axes === undefined && !keep ? [] : undefined
  const gone = new Set(axes?.map(axis => call.axis(axis, shape.length)) ?? shape.keys())
  return keep ? shape.map((dim, i) => (gone.has(i) ? 1 : dim)) : shape.filter((_, i) => !gone.has(i))
}

const reduce: Rule = call => {
  const keep = call.int('keepdims', 1) === 1
  const shape = call.shape(0)
  const axes = call.numbers(1)
  const list = axes?.length === 0 ? undefined : axes
  if (call.has(1) && !axes) {
    return [tensorOrUnknown(call.dtype(0), keep && shape ? unknownShape(shape.length) : undefined)]
  }
  if (list === undefined && call.int('noop_with_empty_axes', 0) === 1) return [call.type(0)]
  return [tensorOrUnknown(call.dtype(0), reduced(call, list, keep))]
}

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

/** The losses give one number, or one for every element of the labels. */
const loss: Rule = call => {
  const whole = stringOf(call.node, 'reduction', 'mean') !== 'none'
  return [tensorOrUnknown(call.dtype(0), whole ? [] : call.shape(1)), call.type(0)]
}

const operators =
  'ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare'

/** Rules by operator. */
export const reduceRules: Readonly<Record<string, Rule>> = {
  ...Object.fromEntries(operators.split(' ').map(name => [name, reduce])),
  ArgMax: argument,
  ArgMin: argument,
  TopK: topK,
  NegativeLogLikelihoodLoss: loss,
  SoftmaxCrossEntropyLoss: loss,
}
