// search.ts: the largest and smallest elements along an axis.
import { numel } from '../../core/shape.js'
import type { Lowering } from '../lowering.js'
import { axisOf } from '../views.js'
import { aroundAxis } from './reduce.js'
import type { LowerTable } from './table.js'

function topK(ctx: Lowering): void {
  const axis = axisOf(ctx.integer('axis'), ctx.shape(0).length)
  const largest = ctx.integer('largest') !== 0
  const { shape } = ctx.output(ctx.wants(0) ? 0 : 1)
  ctx.step('topK', {
    dtype: ctx.dtype(),
    ...aroundAxis(ctx.shape(0), axis),
    k: shape[axis]!,
    largest,
    lastFirst: false,
    x: ctx.read(0),
    values: ctx.result(0),
    indices: ctx.resultOrScratch(1, numel(shape), 'i64'),
  })
}

const argument =
  (largest: boolean) =>
  (ctx: Lowering): void => {
    const axis = axisOf(ctx.integer('axis'), ctx.shape(0).length)
    const lastFirst = ctx.integer('select_last_index') !== 0
    ctx.step('topK', {
      dtype: ctx.dtype(),
      ...aroundAxis(ctx.shape(0), axis),
      k: 1,
      largest,
      lastFirst,
      x: ctx.read(0),
      indices: ctx.write(),
    })
  }

/** Lowerings of searches. */
export const searches: LowerTable = {
  '': { TopK: topK, ArgMax: argument(true), ArgMin: argument(false) },
}
