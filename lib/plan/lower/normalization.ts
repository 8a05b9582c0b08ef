// normalization.ts: normalization of rows, channels, groups, batches and windows of channels.
import { numel } from '../../core/shape.js'
import { int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { NormShape } from '../../kernels/network-args.js'
import type { Lowering, Value } from '../lowering.js'
import type { Buffer, Operand } from '../program.js'
import { axisOf } from '../views.js'
import type { LowerTable } from './table.js'

/** Scale or bias of the normalized axes, repeated where it is smaller than they are. */
function parameter(at: Lowering, i: number, shape: readonly number[]): Operand | undefined {
  if (!at.has(i)) return undefined
  const value = at.input(i)
  return (
    value.buffer.count === numel(shape) ? value : at.call('Expand', [value, at.ints(shape)])
  ).buffer.read()
}

/** Whether input `i`, which broadcasts to x, has other elements for other rows. */
function variesByRow(at: Lowering, i: number, normalized: readonly number[]): boolean {
  const shape = at.inputIfAny(i)?.shape ?? []
  return shape.length > normalized.length && numel(shape.slice(0, -normalized.length)) > 1
}

/** x, scale, bias → y, and mean and 1 / deviation of each row. */
const rowNormalization =
  (centered: boolean) =>
  (at: Lowering): void => {
    const shape = at.shape(0)
    const axis = axisOf(at.integer('axis', -1), shape.length)
    const normalized = shape.slice(axis)
    const [rows, cols] = [numel(shape.slice(0, axis)), numel(normalized)]
    const sizes = { rows, cols, groups: 1, inner: 1, centered, eps: at.number('epsilon', 1e-5) }
    const statistics = { mean: at.result(1), invStd: at.result(2) }
    if (!variesByRow(at, 1, normalized) && !variesByRow(at, 2, normalized)) {
      const [scale, bias] = [parameter(at, 1, normalized), parameter(at, 2, normalized)]
      at.step('norm', { ...sizes, ...statistics, x: at.read(0), scale, bias, y: at.write() })
      return
    }
    const plain = at.scratch(rows * cols)
    at.step('norm', { ...sizes, ...statistics, x: at.read(0), y: plain.write() })
    const scaled = at.call('Mul', [{ dtype: 'f32', shape, buffer: plain }, at.input(1)])
    at.give(at.has(2) ? at.call('Add', [scaled, at.input(2)]) : scaled)
  }

/** x, scale, bias of the channels; `groups` of them are normalized together. */
function channelNormalization(at: Lowering, groups: number): void {
  const [batch = 0, channels = 0, ...rest] = at.shape(0)
  const inner = numel(rest)
  at.step('norm', {
    ...{ rows: batch * groups, cols: (channels / groups) * inner, groups, inner, centered: true },
    ...{ eps: at.number('epsilon', 1e-5), x: at.read(0), scale: at.read(1), bias: at.read(2), y: at.write() },
  })
}

/** How the rows of x, which is input 1, lie for the operator that attribute `of` names. */
function normShape(at: Lowering): NormShape {
  const shape = at.shape(1)
  const of = at.text('of', 'LayerNormalization')
  if (of === 'LayerNormalization' || of === 'RMSNormalization') {
    const axis = axisOf(at.integer('axis', -1), shape.length)
    const [rows, cols] = [numel(shape.slice(0, axis)), numel(shape.slice(axis))]
    return { rows, cols, groups: 1, inner: 1, centered: of === 'LayerNormalization' }
  }
  const [batch = 0, channels = 0, ...rest] = shape
  const groups = of === 'GroupNormalization' ? at.integer('num_groups', 1) : channels
  const inner = numel(rest)
  return { rows: batch * groups, cols: (channels / groups) * inner, groups, inner, centered: true }
}

/** dy, x, scale → dx, dscale, dbias. The statistics are computed again: one pass over x instead of an output to keep. */
function normalizationGrad(at: Lowering): void {
  const shape = normShape(at)
  const x = at.read(1)
  const size = (shape.groups * shape.cols) / shape.inner
  const normalized = at.shape(1).slice(axisOf(at.integer('axis', -1), at.shape(1).length))
  const varies = shape.groups === 1 && variesByRow(at, 2, normalized)
  if (varies || (at.has(2) && at.input(2).buffer.count !== size)) {
    throw at.unsupported('a scale that is repeated has no gradient yet')
  }
  const scale = at.optional(2)
  const [mean, invStd] = [at.scratch(shape.rows), at.scratch(shape.rows)]
  const y = at.scratch(x.count)
  const statistics = { mean: shape.centered ? mean.write() : undefined, invStd: invStd.write() }
  at.step('norm', { ...shape, eps: at.number('epsilon', 1e-5), x, y: y.write(), ...statistics })
  at.step('normBackward', {
    ...{ ...shape, x, scale, mean: shape.centered ? mean.read() : undefined, invStd: invStd.read() },
    ...{ dy: at.read(0), dx: at.result(0), dscale: at.result(1), dbias: at.result(2) },
  })
}

/** An activation [N, C, …] at input `i`, as a kernel sees it. */
function batchShape(at: Lowering, i: number) {
  const [batch = 1, channels = 1, ...rest] = at.shape(i)
  return { batch, channels, positions: numel(rest), eps: at.number('epsilon', 1e-5) }
}

/**
 * x, gamma, beta, mean, variance → gamma · (x − mean) / √(variance + epsilon) + beta. In training mean and variance are
 * those of x, and the next running ones are given out.
 */
function batchNormalization(at: Lowering): void {
  const training = at.integer('training_mode', 0) !== 0
  const { eps, ...shape } = batchShape(at, 0)
  const [mean, variance] = training
    ? [at.scratch(shape.channels), at.scratch(shape.channels)]
    : [at.input(3).buffer, at.input(4).buffer]
  const x = at.read(0)
  if (training) {
    at.step('batchStatistics', { ...shape, x, mean: mean.write(), variance: variance.write() })
    updateRunning(at, 3, mean, 1)
    updateRunning(at, 4, variance, 2)
  }
  const affine = { scale: at.read(1), bias: at.read(2) }
  const statistics = { mean: mean.read(), variance: variance.read() }
  at.step('batchNorm', { ...shape, eps, x, ...statistics, ...affine, y: at.write() })
}

/** Output `o` = momentum · input `i` + (1 − momentum) · the statistics of this batch. */
function updateRunning(at: Lowering, i: number, current: Buffer, o: number): void {
  if (!at.wants(o)) return
  const momentum = at.number('momentum', 0.9)
  const fresh: Value = { dtype: 'f32', shape: at.shape(i), buffer: current }
  const kept = at.call('Mul', [at.input(i), at.one(momentum)])
  at.give(at.call('Add', [kept, at.call('Mul', [fresh, at.one(1 - momentum)])]), o)
}

/** dy, x, gamma, mean, variance → dx, dgamma, dbeta */
function batchNormalizationGrad(at: Lowering): void {
  // Only dgamma depends on x. Without it another array of that size stands in, and x need not live so long.
  const x = at.read(at.wants(1) ? 1 : 0)
  at.step('batchNormBackward', {
    ...{ ...batchShape(at, 1), training: false, mean: at.read(3), variance: at.read(4), scale: at.read(2) },
    ...{ x, dy: at.read(0), dx: at.result(0), dscale: at.result(1), dbias: at.result(2) },
  })
}

/** x divided by the sum of its magnitudes, or the root of that of its squares, along an axis; 0 stays 0. */
function lpNormalization(at: Lowering): void {
  const axis = at.ints([at.integer('axis', -1)])
  const length = at.call(at.integer('p', 2) === 1 ? 'ReduceL1' : 'ReduceL2', [at.input(0), axis])
  const empty = at.call('Equal', [length, at.one(0, at.dtype())])
  at.give(at.call('Div', [at.input(0), at.call('Where', [empty, at.one(1, at.dtype()), length])]))
}

/** x / (bias + alpha · mean of x² over `size` channels)^beta, channels outside counting as 0. */
function lrn(at: Lowering): void {
  const [n = 0, c = 0, ...rest] = at.shape(0)
  const size = at.integer('size', 1)
  const before = Math.floor((size - 1) / 2)
  const squares = at.call('Mul', [at.input(0), at.input(0)])
  const planes = at.reshaped(squares, [n, 1, c, numel(rest)])
  const mean: Value = at.call('AveragePool', [planes], {
    kernel_shape: ints([size, 1]),
    pads: ints([before, 0, size - 1 - before, 0]),
    count_include_pad: int(1),
  })
  const scaled = at.call('Mul', [mean, at.one(at.number('alpha', 1e-4))])
  const base = at.call('Add', [scaled, at.one(at.number('bias', 1))])
  const divisor = powerOf(at, base, at.number('beta', 0.75))
  at.give(at.call('Div', [at.input(0), at.reshaped(divisor, at.shape(0))]))
}

/** base^beta; ¾, which nearly all networks have, by two roots. */
function powerOf(at: Lowering, base: Value, beta: number): Value {
  if (beta !== 0.75) return at.call('Pow', [base, at.one(beta)])
  const root = at.call('Sqrt', [base])
  return at.call('Mul', [root, at.call('Sqrt', [root])])
}

/** Lowerings of normalizations. */
export const normalizations: LowerTable = {
  '': {
    LayerNormalization: at => at.inF32(rowNormalization(true)),
    RMSNormalization: at => at.inF32(rowNormalization(false)),
    GroupNormalization: at => at.inF32(inner => channelNormalization(inner, inner.integer('num_groups', 1))),
    InstanceNormalization: at => at.inF32(inner => channelNormalization(inner, inner.shape(0)[1]!)),
    BatchNormalization: at => at.inF32(batchNormalization),
    LpNormalization: lpNormalization,
    LRN: at => at.inF32(lrn),
  },
  [sparkDomain]: {
    NormalizationGrad: normalizationGrad,
    BatchNormalizationGrad: batchNormalizationGrad,
  },
}
