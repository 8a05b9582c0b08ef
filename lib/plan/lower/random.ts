// random.ts: dropout.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { LowerTable } from './table.js'

/** Nothing is dropped outside of training: x, and a mask of ones. */
function dropout(ctx: Lowering): void {
  if (ctx.has(2) && ctx.integers(2)[0] !== 0 && !(ctx.has(1) && ctx.numbers(1)[0] === 0)) {
    throw ctx.unsupported('dropping is random; training_mode must be false')
  }
  ctx.give(ctx.input(0))
  if (ctx.wants(1)) ctx.give(ctx.call('Expand', [ctx.one(1, 'bool'), ctx.ints(ctx.shape(0))]), 1)
}

/** x, state → a mask of the shape of x */
function dropoutMask(ctx: Lowering): void {
  const { shape } = ctx.output()
  const mask = ctx.scratch(numel(shape))
  ctx.step('dropoutMask', {
    count: mask.count,
    ratio: ctx.number('ratio'),
    stream: ctx.integer('stream'),
    state: ctx.read(1),
    mask: mask.write(),
  })
  ctx.give({ dtype: 'f32', shape, buffer: mask })
}

/** Lowerings of dropout. */
export const randomness: LowerTable = {
  '': { Dropout: dropout },
  [sparkDomain]: { DropoutMask: dropoutMask },
}
