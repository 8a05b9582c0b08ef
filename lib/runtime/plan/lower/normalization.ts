// normalization.ts: layer, RMS, group and instance normalization.
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { axisOf, volume } from '../views.js'
import type { LowerTable } from './table.js'

/** Scale or bias of the normalized axes, repeated where it is smaller than they are. */
function parameter(at: Lowering, i: number, shape: readonly number[]): Operand | undefined {
  if (!at.has(i)) return undefined
  const value = at.input(i)
  return (
    value.buffer.count === volume(shape) ? value : at.call('Expand', [value, at.ints(shape)])
  ).buffer.read()
}

/** x, scale, bias → y, and mean and 1 / deviation of each row. */
const rowNormalization =
  (centered: boolean) =>
  (at: Lowering): void => {
    const shape = at.shape(0)
    const axis = axisOf(at.integer('axis', -1), shape.length)
    const normalized = shape.slice(axis)
    const [rows, cols] = [volume(shape.slice(0, axis)), volume(normalized)]
    at.step('norm', {
      ...{ rows, cols, groups: 1, inner: 1, centered, eps: at.number('epsilon', 1e-5), x: at.read(0) },
      ...{ scale: parameter(at, 1, normalized), bias: centered ? parameter(at, 2, normalized) : undefined },
      ...{ y: at.write(), mean: at.result(1), invStd: at.result(2) },
    })
  }

/** x, scale, bias of the channels; `groups` of them are normalized together. */
function channelNormalization(at: Lowering, groups: number): void {
  const [batch = 0, channels = 0, ...rest] = at.shape(0)
  const inner = volume(rest)
  at.step('norm', {
    ...{ rows: batch * groups, cols: (channels / groups) * inner, groups, inner, centered: true },
    ...{ eps: at.number('epsilon', 1e-5), x: at.read(0), scale: at.read(1), bias: at.read(2), y: at.write() },
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
}
