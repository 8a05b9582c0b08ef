// reduce.ts: reductions and cumulative sums along axes, and their gradients.

import { contiguousStrides, numel } from '../../core/shape.js'
import { fixSize, lessThan, multiply, type Size, sameSize } from '../../core/size.js'
import { int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { ReduceFn } from '../../kernels/strided-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { axisOf, collapse } from '../views.js'
import { zeros } from './copy.js'
import { addBinary } from './elementwise.js'
import type { LowerTable } from './table.js'

/** Adds y = fn over the given axes of x. */
export function addReduce(
  ctx: Lowering,
  fn: ReduceFn,
  [x, shape]: readonly [Operand, readonly Size[]],
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
  ctx.step('reduce', {
    fn,
    dtype: ctx.kernelType(x.buffer.dtype),
    shape: outer.shape,
    reduced: inner.shape,
    strides: outer.strides[0]!,
    reducedStrides: inner.strides[0]!,
    x,
    y,
  })
}

/** Axes of a reduction: an input of newer opsets, an attribute of older ones; all where there is neither. */
export function reducedAxes(ctx: Lowering, x = 0): Set<number> {
  const rank = ctx.shape(x).length
  const axes = (ctx.has(x + 1) ? ctx.integers(x + 1) : ctx.integersOf('axes')) ?? []
  if (axes.length > 0) return new Set(axes.map(axis => axisOf(axis, rank)))
  return new Set(ctx.integer('noop_with_empty_axes') ? [] : ctx.shape(x).map((_, axis) => axis))
}

/** [outer, size, inner] of a shape around an axis. */
export function aroundAxis(shape: readonly Size[], axis: number) {
  return { outer: numel(shape.slice(0, axis)), size: shape[axis]!, inner: numel(shape.slice(axis + 1)) }
}

const reduce =
  (fn: ReduceFn) =>
  (ctx: Lowering): void =>
    addReduce(ctx, fn, [ctx.read(0), ctx.shape(0)], reducedAxes(ctx), ctx.write())

/** One operator after another reduction of the same axes. */
const reduceThen =
  (reduction: string, op: string) =>
  (ctx: Lowering): void => {
    const inputs = ctx.node.inputs.map((_, i) => ctx.input(i))
    ctx.give(ctx.call(op, [ctx.call(reduction, inputs, ctx.node.attributes)]))
  }

/** log Σ e^x = max + log Σ e^(x − max), which does not overflow. */
function logSumExp(ctx: Lowering): void {
  const inputs = ctx.node.inputs.map((_, i) => ctx.input(i))
  const keep = { ...ctx.node.attributes, keepdims: int(1) }
  const max = ctx.call('ReduceMax', inputs, keep)
  const shifted = ctx.call('Exp', [ctx.call('Sub', [ctx.input(0), max])])
  const sum = ctx.call('ReduceSum', [shifted, ...inputs.slice(1)], keep)
  const log = ctx.call('Add', [ctx.call('Log', [sum]), max])
  ctx.give(ctx.reshaped(log, ctx.output().shape))
}

const cumulate =
  (fn: 'sum' | 'prod') =>
  (ctx: Lowering): void => {
    const axis = axisOf(ctx.integers(1)[0]!, ctx.shape(0).length)
    const [exclusive, reverse] = [ctx.integer('exclusive') !== 0, ctx.integer('reverse') !== 0]
    ctx.step('cumulate', {
      fn,
      dtype: ctx.dtype(),
      ...aroundAxis(ctx.shape(0), axis),
      exclusive,
      reverse,
      x: ctx.read(0),
      y: ctx.write(),
    })
  }

/** The sum of x over the axes along which a tensor of the shape of input 1 was broadcast to it. */
function sumLike(ctx: Lowering): void {
  const [from, to] = [ctx.shape(0), ctx.shape(1)]
  const missing = from.length - to.length
  const [given, wanted] = [numel(from), numel(to)]
  if (lessThan(given, wanted)) throw ctx.unsupported(`[${from}] cannot be summed to [${to}]`)
  const axes = from
    .map((_, axis) => axis)
    .filter(axis => axis < missing || !sameSize(to[axis - missing]!, from[axis]!))
  if (sameSize(given, wanted)) ctx.view(0)
  else addReduce(ctx, 'sum', [ctx.read(0), from], new Set(axes), ctx.write())
}

/** dy, x, axes → dy repeated along the axes that the reduction of x took away, divided by their sizes for a mean. */
const reduceGrad =
  (mean: boolean) =>
  (ctx: Lowering): void => {
    const shape = ctx.shape(1)
    const axes = reducedAxes(ctx, 1)
    const row = shape.map((size, axis) => (axes.has(axis) ? 1 : size))
    const factor = mean ? fixSize(numel(row)) / fixSize(numel(shape)) : 1
    addBinary(ctx, 'mul', [ctx.read(0), row], [ctx.scalar(factor), []], [ctx.write(), shape])
  }

/** dy, x, axes → dx: the first of the elements that equal the largest or smallest one gets dy. */
function extremeGrad(ctx: Lowering): void {
  const shape = ctx.shape(1)
  const axes = [...reducedAxes(ctx, 1)].sort((a, b) => a - b)
  const [first = 0, last = -1] = [axes[0], axes.at(-1)]
  if (last - first + 1 !== axes.length) throw ctx.unsupported('only neighbouring axes have a gradient')
  const outer = numel(shape.slice(0, first))
  const [size, inner] = [numel(shape.slice(first, last + 1)), numel(shape.slice(last + 1))]
  const indices = ctx.scratch(multiply(outer, inner), 'i64')
  const dx = zeros(ctx)
  ctx.step('topK', {
    dtype: 'f32',
    outer,
    size,
    inner,
    k: 1,
    lastFirst: false,
    x: ctx.read(1),
    indices: indices.write(),
    largest: ctx.text('of') === 'max',
  })
  ctx.step('scatter', {
    fn: 'assign',
    dtype: 'f32',
    shape: [outer, inner],
    strides: [multiply(size, inner), 1],
    indexStrides: [inner, 1],
    steps: [inner],
    limits: [size],
    indices: indices.read(),
    updates: ctx.read(0),
    y: dx.update(),
  })
}

/** The sum over the ranks of a communicator. */
function allReduce(ctx: Lowering): void {
  const { world, backend } = ctx.target
  if (world === undefined)
    throw ctx.unsupported('it sums over ranks, but the model has no communicator: open it with one')
  const { dtype, shape } = ctx.input(0)
  if (dtype !== 'f32') throw ctx.unsupported(`it sums f32, not ${dtype}`)
  if (world === 1) ctx.view(0)
  else if (backend === 'js')
    throw ctx.unsupported(`js cannot call a communicator of ${world} ranks; the backends cpu and cuda can`)
  else ctx.step('allReduce', { count: numel(shape), world, x: ctx.read(0), y: ctx.write() })
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
    CumSum: cumulate('sum'),
    CumProd: cumulate('prod'),
  },
  [sparkDomain]: {
    AllReduce: allReduce,
    SumLike: sumLike,
    ReduceSumGrad: reduceGrad(false),
    ReduceMeanGrad: reduceGrad(true),
    ReduceExtremeGrad: extremeGrad,
  },
}
