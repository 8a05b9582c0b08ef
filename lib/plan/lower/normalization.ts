// normalization.ts: normalization of rows, channels, groups, batches and windows of channels.

import { numel } from '../../core/shape.js'
import { lessThan, multiply, partOf, type Size, sameSize } from '../../core/size.js'
import { int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { NormShape } from '../../kernels/network-args.js'
import type { Lowering } from '../lowering.js'
import type { Buffer, Operand, Symbolic } from '../program.js'
import type { Value } from '../value.js'
import { axisOf } from '../views.js'
import type { LowerTable } from './table.js'

/** Scale or bias of the normalized axes, repeated where it is smaller than they are. */
function parameter(ctx: Lowering, i: number, shape: readonly Size[]): Operand | undefined {
  if (!ctx.has(i)) return undefined
  const value = ctx.input(i)
  return (
    sameSize(value.buffer.count, numel(shape)) ? value : ctx.call('Expand', [value, ctx.ints(shape)])
  ).buffer.read()
}

/** Whether input `i`, which broadcasts to x, has other elements for other rows. */
function variesByRow(ctx: Lowering, i: number, normalized: readonly Size[]): boolean {
  const shape = ctx.inputIfAny(i)?.shape ?? []
  return shape.length > normalized.length && lessThan(1, numel(shape.slice(0, -normalized.length)))
}

/** x, scale, bias → y, and mean and 1 / deviation of each row. */
const rowNormalization =
  (centered: boolean) =>
  (ctx: Lowering): void => {
    const shape = ctx.shape(0)
    const axis = axisOf(ctx.integer('axis'), shape.length)
    const normalized = shape.slice(axis)
    const [rows, cols] = [numel(shape.slice(0, axis)), numel(normalized)]
    const sizes = { rows, cols, groups: 1, inner: 1, centered, eps: ctx.number('epsilon') }
    const statistics = { mean: ctx.result(1), invStd: ctx.result(2) }
    if (!variesByRow(ctx, 1, normalized) && !variesByRow(ctx, 2, normalized)) {
      const [scale, bias] = [parameter(ctx, 1, normalized), parameter(ctx, 2, normalized)]
      ctx.step('norm', { ...sizes, ...statistics, x: ctx.read(0), scale, bias, y: ctx.write() })
      return
    }
    const plain = ctx.scratch(multiply(rows, cols))
    ctx.step('norm', { ...sizes, ...statistics, x: ctx.read(0), y: plain.write() })
    const scaled = ctx.call('Mul', [{ dtype: 'f32', shape, buffer: plain }, ctx.input(1)])
    ctx.give(ctx.has(2) ? ctx.call('Add', [scaled, ctx.input(2)]) : scaled)
  }

/** x, scale, bias of the channels; `groups` of them are normalized together. */
function channelNormalization(ctx: Lowering, groups: Size): void {
  const [batch = 0, channels = 0, ...rest] = ctx.shape(0)
  const inner = numel(rest)
  ctx.step('norm', {
    rows: multiply(batch, groups),
    cols: multiply(partOf(channels, groups), inner),
    groups,
    inner,
    centered: true,
    eps: ctx.number('epsilon'),
    x: ctx.read(0),
    scale: ctx.read(1),
    bias: ctx.read(2),
    y: ctx.write(),
  })
}

/** How the rows of x, which is input 1, lie for the operator that attribute `of` names. */
function normShape(ctx: Lowering): Symbolic<NormShape> {
  const shape = ctx.shape(1)
  const of = ctx.text('of')
  if (of === 'LayerNormalization' || of === 'RMSNormalization') {
    const axis = axisOf(ctx.integer('axis'), shape.length)
    const [rows, cols] = [numel(shape.slice(0, axis)), numel(shape.slice(axis))]
    return { rows, cols, groups: 1, inner: 1, centered: of === 'LayerNormalization' }
  }
  const [batch = 0, channels = 0, ...rest] = shape
  const groups = of === 'GroupNormalization' ? ctx.integer('num_groups') : channels
  const inner = numel(rest)
  const cols = multiply(partOf(channels, groups), inner)
  return { rows: multiply(batch, groups), cols, groups, inner, centered: true }
}

/** dy, x, scale → dx, dscale, dbias. The statistics are computed again: one pass over x instead of an output to keep. */
function normalizationGrad(ctx: Lowering): void {
  const shape = normShape(ctx)
  const x = ctx.read(1)
  const size = partOf(multiply(shape.groups, shape.cols), shape.inner)
  const normalized = ctx.shape(1).slice(axisOf(ctx.integer('axis'), ctx.shape(1).length))
  const varies = shape.groups === 1 && variesByRow(ctx, 2, normalized)
  if (varies || (ctx.has(2) && !sameSize(ctx.input(2).buffer.count, size))) {
    throw ctx.unsupported('a scale that is repeated has no gradient yet')
  }
  const scale = ctx.optional(2)
  const [mean, invStd] = [ctx.scratch(shape.rows), ctx.scratch(shape.rows)]
  const y = ctx.scratch(x.count)
  const statistics = { mean: shape.centered ? mean.write() : undefined, invStd: invStd.write() }
  ctx.step('norm', { ...shape, eps: ctx.number('epsilon'), x, y: y.write(), ...statistics })
  ctx.step('normBackward', {
    ...shape,
    x,
    scale,
    mean: shape.centered ? mean.read() : undefined,
    invStd: invStd.read(),
    dy: ctx.read(0),
    dx: ctx.result(0),
    dscale: ctx.result(1),
    dbias: ctx.result(2),
  })
}

/** An activation [N, C, …] at input `i`, as a kernel sees it. */
function batchShape(ctx: Lowering, i: number) {
  const [batch = 1, channels = 1, ...rest] = ctx.shape(i)
  return { batch, channels, positions: numel(rest), eps: ctx.number('epsilon') }
}

/**
 * x, gamma, beta, mean, variance → gamma · (x − mean) / √(variance + epsilon) + beta. In training mean and variance are
 * those of x, and the next running ones are given out.
 */
function batchNormalization(ctx: Lowering): void {
  const training = ctx.integer('training_mode') !== 0
  const { eps, ...shape } = batchShape(ctx, 0)
  const [mean, variance] = training
    ? [ctx.scratch(shape.channels), ctx.scratch(shape.channels)]
    : [ctx.input(3).buffer, ctx.input(4).buffer]
  const x = ctx.read(0)
  if (training) {
    ctx.step('batchStatistics', { ...shape, x, mean: mean.write(), variance: variance.write() })
    updateRunning(ctx, 3, mean, 1)
    updateRunning(ctx, 4, variance, 2)
  }
  const affine = { scale: ctx.read(1), bias: ctx.read(2) }
  const statistics = { mean: mean.read(), variance: variance.read() }
  ctx.step('batchNorm', { ...shape, eps, x, ...statistics, ...affine, y: ctx.write() })
}

/** Output `o` = momentum · input `i` + (1 − momentum) · the statistics of this batch. */
function updateRunning(ctx: Lowering, i: number, current: Buffer, o: number): void {
  if (!ctx.wants(o)) return
  const momentum = ctx.number('momentum')
  const fresh: Value = { dtype: 'f32', shape: ctx.shape(i), buffer: current }
  const kept = ctx.call('Mul', [ctx.input(i), ctx.one(momentum)])
  ctx.give(ctx.call('Add', [kept, ctx.call('Mul', [fresh, ctx.one(1 - momentum)])]), o)
}

/** dy, x, gamma, mean, variance → dx, dgamma, dbeta */
function batchNormalizationGrad(ctx: Lowering): void {
  // Only dgamma depends on x. Without it another array of that size stands in, and x need not live so long.
  const x = ctx.read(ctx.wants(1) ? 1 : 0)
  ctx.step('batchNormBackward', {
    ...batchShape(ctx, 1),
    training: false,
    mean: ctx.read(3),
    variance: ctx.read(4),
    scale: ctx.read(2),
    x,
    dy: ctx.read(0),
    dx: ctx.result(0),
    dscale: ctx.result(1),
    dbias: ctx.result(2),
  })
}

/** x divided by the sum of its magnitudes, or the root of that of its squares, along an axis; 0 stays 0. */
function lpNormalization(ctx: Lowering): void {
  const axis = ctx.ints([ctx.integer('axis')])
  const length = ctx.call(ctx.integer('p') === 1 ? 'ReduceL1' : 'ReduceL2', [ctx.input(0), axis])
  const empty = ctx.call('Equal', [length, ctx.one(0, ctx.dtype())])
  ctx.give(ctx.call('Div', [ctx.input(0), ctx.call('Where', [empty, ctx.one(1, ctx.dtype()), length])]))
}

/** x / (bias + alpha · mean of x² over `size` channels)^beta, channels outside counting as 0. */
function lrn(ctx: Lowering): void {
  const [n = 0, c = 0, ...rest] = ctx.shape(0)
  const size = ctx.integer('size')
  const before = Math.floor((size - 1) / 2)
  const squares = ctx.call('Mul', [ctx.input(0), ctx.input(0)])
  const planes = ctx.reshaped(squares, [n, 1, c, numel(rest)])
  const mean: Value = ctx.call('AveragePool', [planes], {
    kernel_shape: ints([size, 1]),
    pads: ints([before, 0, size - 1 - before, 0]),
    count_include_pad: int(1),
  })
  const scaled = ctx.call('Mul', [mean, ctx.one(ctx.number('alpha'))])
  const base = ctx.call('Add', [scaled, ctx.one(ctx.number('bias'))])
  const divisor = powerOf(ctx, base, ctx.number('beta'))
  ctx.give(ctx.call('Div', [ctx.input(0), ctx.reshaped(divisor, ctx.shape(0))]))
}

/** base^beta; ¾, which nearly all networks have, by two roots. */
function powerOf(ctx: Lowering, base: Value, beta: number): Value {
  if (beta !== 0.75) return ctx.call('Pow', [base, ctx.one(beta)])
  const root = ctx.call('Sqrt', [base])
  return ctx.call('Mul', [root, ctx.call('Sqrt', [root])])
}

/** Lowerings of normalizations. */
export const normalizations: LowerTable = {
  '': {
    LayerNormalization: ctx => ctx.inF32(rowNormalization(true)),
    RMSNormalization: ctx => ctx.inF32(rowNormalization(false)),
    GroupNormalization: ctx => ctx.inF32(inner => channelNormalization(inner, inner.integer('num_groups'))),
    InstanceNormalization: ctx => ctx.inF32(inner => channelNormalization(inner, inner.shape(0)[1]!)),
    BatchNormalization: ctx => ctx.inF32(batchNormalization),
    LpNormalization: lpNormalization,
    LRN: ctx => ctx.inF32(lrn),
  },
  [sparkDomain]: {
    NormalizationGrad: normalizationGrad,
    BatchNormalizationGrad: batchNormalizationGrad,
  },
}
