// softmax.ts: softmax, its logarithm, and its one-hot limit along an axis.

import { numel } from '../../core/shape.js'
import { sameSize } from '../../core/size.js'
import { int } from '../../graph/attributes.js'
import type { Lowering } from '../lowering.js'
import { axisOf } from '../views.js'
import { addBinary, addUnary } from './elementwise.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'

/** softmax or its logarithm along one axis; one that is not the last by x − max, then e^… / Σ or … − log Σ. */
const softmax =
  (logarithm: boolean) =>
  (ctx: Lowering): void => {
    const shape = ctx.shape(0)
    const axis = axisOf(ctx.integer('axis'), shape.length)
    const cols = shape[axis]!
    if (cols !== 0 && sameSize(numel(shape.slice(axis + 1)), 1)) {
      const rows = numel(shape.filter((_, i) => i !== axis))
      ctx.step('softmax', { rows, cols, log: logarithm, x: ctx.read(0), y: ctx.write() })
      return
    }
    const row = shape.map((size, i) => (i === axis ? 1 : size))
    const [max, sum] = [ctx.scratch(numel(row)), ctx.scratch(numel(row))]
    const [shifted, powers] = [ctx.scratch(numel(shape)), ctx.scratch(numel(shape))]
    addReduce(ctx, 'max', [ctx.read(0), shape], new Set([axis]), max.write())
    addBinary(ctx, 'sub', [ctx.read(0), shape], [max.read(), row], [shifted.write(), shape])
    addUnary(ctx, 'exp', shifted.read(), powers.write())
    addReduce(ctx, 'sum', [powers.read(), shape], new Set([axis]), sum.write())
    if (logarithm) {
      const log = ctx.scratch(numel(row))
      addUnary(ctx, 'log', sum.read(), log.write())
      addBinary(ctx, 'sub', [shifted.read(), shape], [log.read(), row], [ctx.write(), shape])
    } else {
      addBinary(ctx, 'div', [powers.read(), shape], [sum.read(), row], [ctx.write(), shape])
    }
  }

/** 1 at the first largest element along an axis, else 0. */
function hardmax(ctx: Lowering): void {
  const shape = ctx.shape(0)
  const axis = axisOf(ctx.integer('axis'), shape.length)
  const first = ctx.call('ArgMax', [ctx.input(0)], { axis: int(axis), keepdims: int(0) })
  const values = ctx.constantOf(ctx.dtype(), [2], [0, 1])
  ctx.give(ctx.call('OneHot', [first, ctx.one(shape[axis]!, 'i64'), values], { axis: int(axis) }))
}

/** Lowerings of softmax and its kin. */
export const softmaxes: LowerTable = {
  '': {
    Softmax: ctx => ctx.inF32(softmax(false)),
    LogSoftmax: ctx => ctx.inF32(softmax(true)),
    Hardmax: hardmax,
  },
}
