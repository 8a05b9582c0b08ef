// search.ts: the largest and smallest elements along an axis.
import { numel } from '../../core/shape.js'
import type { Lowering } from '../lowering.js'
import { axisOf } from '../views.js'
import { aroundAxis } from './reduce.js'
import type { LowerTable } from './table.js'

function topK(at: Lowering): void {
  const axis = axisOf(at.integer('axis', -1), at.shape(0).length)
  const largest = at.integer('largest', 1) !== 0
  const { shape } = at.output(at.wants(0) ? 0 : 1)
  at.step('topK', {
    ...{ dtype: at.dtype(), ...aroundAxis(at.shape(0), axis), k: shape[axis]!, largest, lastFirst: false },
    ...{ x: at.read(0), values: at.result(0), indices: at.resultOrScratch(1, numel(shape), 'i64') },
  })
}

const argument =
  (largest: boolean) =>
  (at: Lowering): void => {
    const axis = axisOf(at.integer('axis', 0), at.shape(0).length)
    const lastFirst = at.integer('select_last_index', 0) !== 0
    at.step('topK', {
      ...{ dtype: at.dtype(), ...aroundAxis(at.shape(0), axis), k: 1, largest, lastFirst },
      ...{ x: at.read(0), indices: at.write() },
    })
  }

/** Lowerings of searches. */
export const searches: LowerTable = {
  '': { TopK: topK, ArgMax: argument(true), ArgMin: argument(false) },
}
