// random.ts: dropout.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { LowerTable } from './table.js'

/** Nothing is dropped outside of training: x, and a mask of ones. */
function dropout(at: Lowering): void {
  if (at.has(2) && at.integers(2)[0] !== 0 && !(at.has(1) && at.numbers(1)[0] === 0)) {
    throw at.unsupported('dropping is random; training_mode must be false')
  }
  at.give(at.input(0))
  if (at.wants(1)) at.give(at.call('Expand', [at.one(1, 'bool'), at.ints(at.shape(0))]), 1)
}

/** x, state → a mask of the shape of x */
function dropoutMask(at: Lowering): void {
  const { shape } = at.output()
  const mask = at.scratch(numel(shape))
  at.step('dropoutMask', {
    ...{ count: mask.count, ratio: at.number('ratio', 0), stream: at.integer('stream', 0) },
    ...{ state: at.read(1), mask: mask.write() },
  })
  at.give({ dtype: 'f32', shape, buffer: mask })
}

/** Lowerings of dropout. */
export const randomness: LowerTable = {
  '': { Dropout: dropout },
  [sparkDomain]: { DropoutMask: dropoutMask },
}
