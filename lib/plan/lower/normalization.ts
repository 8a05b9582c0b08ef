// normalization.ts: layer, RMS, group and instance normalization.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { NormShape } from '../../kernels/network-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
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

/** Lowerings of normalizations. */
export const normalizations: LowerTable = {
  '': {
    LayerNormalization: at => at.inF32(rowNormalization(true)),
    RMSNormalization: at => at.inF32(rowNormalization(false)),
    GroupNormalization: at => at.inF32(inner => channelNormalization(inner, inner.integer('num_groups', 1))),
    InstanceNormalization: at => at.inF32(inner => channelNormalization(inner, inner.shape(0)[1]!)),
  },
  [sparkDomain]: { NormalizationGrad: normalizationGrad },
}
