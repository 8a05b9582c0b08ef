// reduce.ts: sums and the like along axes, and what is made of them.
import { contiguousStrides, numel } from '../../core/shape.js'
import { int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { ReduceFn } from '../../kernels/tensor-kernel-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { axisOf, collapse } from '../views.js'
import { addBinary, addUnary } from './elementwise.js'
import type { LowerTable } from './table.js'

/** Adds y = fn over the given axes of x. */
export function addReduce(
  at: Lowering,
  fn: ReduceFn,
  [x, shape]: readonly [Operand, readonly number[]],
  axes: ReadonlySet<number>,
  y: Operand,
): void {
  const strides = contiguousStrides(shape)
  const part = (reduced: boolean) => {
    const kept = shape.map((_, axis) => axis).filter(axis => axes.has(axis) === reduced)
    return collapse(
      kept.map(axis => shape[axis]!),
      [kept.map(axis => strides[axis]!)],
    )
  }
  const [outer, inner] = [part(false), part(true)]
  at.step('reduce', {
    fn,
    dtype: at.kernelType(x.buffer.dtype),
    shape: outer.shape,
    reduced: inner.shape,
    strides: outer.strides[0]!,
    reducedStrides: inner.strides[0]!,
    x,
    y,
  })
}

/** Axes of a reduction: an input of newer opsets, an attribute of older ones; all where there is neither. */
export function reducedAxes(at: Lowering, x = 0): Set<number> {
  const rank = at.shape(x).length
  const axes = (at.has(x + 1) ? at.integers(x + 1) : at.integersOf('axes')) ?? []
  if (axes.length > 0) return new Set(axes.map(axis => axisOf(axis, rank)))
  return new Set(at.integer('noop_with_empty_axes', 0) ? [] : at.shape(x).map((_, axis) => axis))
}

const reduce =
  (fn: ReduceFn) =>
  (at: Lowering): void =>
    addReduce(at, fn, [at.read(0), at.shape(0)], reducedAxes(at), at.write())

/** One operator after another reduction of the same axes. */
const reduceThen =
  (reduction: string, op: string) =>
  (at: Lowering): void => {
    const inputs = at.node.inputs.map((_, i) => at.input(i))
    at.give(at.call(op, [at.call(reduction, inputs, at.node.attributes)]))
  }

/** log Σ e^x = most + log Σ e^(x − most), which does not overflow. */
function logSumExp(at: Lowering): void {
  const inputs = at.node.inputs.map((_, i) => at.input(i))
  const keep = { ...at.node.attributes, keepdims: int(1) }
  const most = at.call('ReduceMax', inputs, keep)
  const shifted = at.call('Exp', [at.call('Sub', [at.input(0), most])])
  const sum = at.call('ReduceSum', [shifted, ...inputs.slice(1)], keep)
  const log = at.call('Add', [at.call('Log', [sum]), most])
  at.give(at.reshaped(log, at.output().shape))
}

/** x divided by the sum of its magnitudes, or the root of that of its squares, along an axis; 0 stays 0. */
function lpNormalization(at: Lowering): void {
  const axis = at.ints([at.integer('axis', -1)])
  const length = at.call(at.integer('p', 2) === 1 ? 'ReduceL1' : 'ReduceL2', [at.input(0), axis])
  const empty = at.call('Equal', [length, at.one(0, at.dtype())])
  at.give(at.call('Div', [at.input(0), at.call('Where', [empty, at.one(1, at.dtype()), length])]))
}

/** The sum of x over the axes along which a tensor of the shape of input 1 was broadcast to it. */
function sumLike(at: Lowering): void {
  const [from, to] = [at.shape(0), at.shape(1)]
  const missing = from.length - to.length
  if (numel(to) > numel(from)) throw at.unsupported(`[${from}] cannot be summed to [${to}]`)
  const axes = from.map((_, axis) => axis).filter(axis => axis < missing || to[axis - missing] !== from[axis])
  if (numel(from) === numel(to)) at.view(0)
  else addReduce(at, 'sum', [at.read(0), from], new Set(axes), at.write())
}

/** dy, x, axes → dy repeated along the axes that the reduction of x took away, divided by their sizes for a mean. */
const reduceGrad =
  (mean: boolean) =>
  (at: Lowering): void => {
    const shape = at.shape(1)
    const axes = reducedAxes(at, 1)
    const row = shape.map((size, axis) => (axes.has(axis) ? 1 : size))
    const factor = mean ? numel(row) / numel(shape) : 1
    addBinary(at, 'mul', [at.read(0), row], [at.scalar(factor), []], [at.write(), shape])
  }

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

/** Lowerings of reductions. */
export const reductions: LowerTable = {
  '': {
    ReduceSum: reduce('sum'),
    ReduceMean: reduce('mean'),
    ReduceMax: reduce('max'),
    ReduceMin: reduce('min'),
    ReduceProd: reduce('prod'),
    ReduceSumSquare: reduce('sum_square'),
    ReduceL1: reduce('sum_abs'),
    ReduceL2: reduceThen('ReduceSumSquare', 'Sqrt'),
    ReduceLogSum: reduceThen('ReduceSum', 'Log'),
    ReduceLogSumExp: logSumExp,
    LpNormalization: lpNormalization,
    Softmax: at => at.inF32(softmax(false)),
    LogSoftmax: at => at.inF32(softmax(true)),
  },
  [sparkDomain]: { SumLike: sumLike, ReduceSumGrad: reduceGrad(false), ReduceMeanGrad: reduceGrad(true) },
}
