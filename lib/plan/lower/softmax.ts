// softmax.ts: softmax, its logarithm, and its one-hot limit along an axis.
import { numel } from '../../core/shape.js'
import { int } from '../../graph/attributes.js'
import type { Lowering } from '../lowering.js'
import { axisOf } from '../views.js'
import { addBinary, addUnary } from './elementwise.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'

/** softmax or its logarithm along one axis; one that is not the last by x − max, then e^… / Σ or … − log Σ. */
const softmax =
  (logarithm: boolean) =>
  (at: Lowering): void => {
    const shape = at.shape(0)
    const axis = axisOf(at.integer('axis', -1), shape.length)
    const cols = shape[axis]!
    if (cols > 0 && numel(shape.slice(axis + 1)) === 1) {
      at.step('softmax', { rows: numel(shape) / cols, cols, log: logarithm, x: at.read(0), y: at.write() })
      return
    }
    const row = shape.map((size, i) => (i === axis ? 1 : size))
    const [most, sum] = [at.scratch(numel(row)), at.scratch(numel(row))]
    const [shifted, powers] = [at.scratch(numel(shape)), at.scratch(numel(shape))]
    addReduce(at, 'max', [at.read(0), shape], new Set([axis]), most.write())
    addBinary(at, 'sub', [at.read(0), shape], [most.read(), row], [shifted.write(), shape])
    addUnary(at, 'exp', shifted.read(), powers.write())
    addReduce(at, 'sum', [powers.read(), shape], new Set([axis]), sum.write())
    if (logarithm) {
      const log = at.scratch(numel(row))
      addUnary(at, 'log', sum.read(), log.write())
      addBinary(at, 'sub', [shifted.read(), shape], [log.read(), row], [at.write(), shape])
    } else {
      addBinary(at, 'div', [powers.read(), shape], [sum.read(), row], [at.write(), shape])
    }
  }

/** 1 at the first largest element along an axis, else 0. */
function hardmax(at: Lowering): void {
  const shape = at.shape(0)
  const axis = axisOf(at.integer('axis', -1), shape.length)
  const first = at.call('ArgMax', [at.input(0)], { axis: int(axis), keepdims: int(0) })
  const values = at.constantOf(at.dtype(), [2], [0, 1])
  at.give(at.call('OneHot', [first, at.one(shape[axis]!, 'i64'), values], { axis: int(axis) }))
}

/** Lowerings of softmax and its kin. */
export const softmaxes: LowerTable = {
  '': {
    Softmax: at => at.inF32(softmax(false)),
    LogSoftmax: at => at.inF32(softmax(true)),
    Hardmax: hardmax,
  },
}
