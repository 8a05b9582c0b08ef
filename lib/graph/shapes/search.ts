// search.ts: shapes of searches: largest elements, positions of elements, distinct elements.
import { isSize, lessThan } from '../../core/size.js'
import { givenInt } from '../attributes.js'
import type { SymbolicDimension } from '../graph.js'
import { type Rule, type ShapeContext, tensorOrUnknown } from './context.js'
import { single } from './operands.js'
import { reduced } from './reduce.js'
import type { OperatorTable } from './row.js'
import { withDimension } from './slice.js'

const argument: Rule = ctx => {
  const axis = ctx.int('axis')
  expectElements(ctx, axis, 1)
  return [tensorOrUnknown('i64', reduced(ctx, [axis], ctx.int('keepdims') === 1))]
}

/** Refuses to look for more elements along an axis than there are. */
function expectElements(ctx: ShapeContext, axis: number, count: SymbolicDimension): void {
  const shape = ctx.shape(0)
  const size = shape?.[ctx.axis(axis, shape.length)]
  if (isSize(size) && isSize(count) && lessThan(size, count))
    throw ctx.fail(`axis ${axis} has ${size} elements, but ${count} are wanted`)
}

const topK: Rule = ctx => {
  const shape = ctx.shape(0)
  const axis = shape && ctx.axis(ctx.int('axis'), shape.length)
  const k = ctx.known(1)?.elements[0] ?? null
  expectElements(ctx, ctx.int('axis'), k)
  const result = shape && withDimension(shape, axis!, k)
  return [tensorOrUnknown(ctx.dtype(0), result), tensorOrUnknown('i64', result)]
}

const nonZero: Rule = ctx => [tensorOrUnknown('i64', [ctx.shape(0)?.length ?? null, null])]

const unique: Rule = ctx => {
  const axis = givenInt(ctx.node, 'axis')
  const shape = ctx.shape(0)
  const at = axis === undefined || !shape ? undefined : ctx.axis(axis, shape.length)
  const values = axis === undefined ? [null] : shape?.map((dim, i) => (i === at ? null : dim))
  const index = tensorOrUnknown('i64', [null])
  return [tensorOrUnknown(ctx.dtype(0), values), index, index, index]
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
