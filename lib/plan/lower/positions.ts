// positions.ts: lists of positions along an axis. Kernels make them, as their length may depend on sizes.
import { add, maximum, multiply, type Size, subtract } from '../../core/size.js'
import type { Lowering } from '../lowering.js'
import type { Value } from '../value.js'

/** start, start + 1 …: `count` integers of i64. */
export function positions(ctx: Lowering, count: Size, start: Size = 0): Value {
  const ends = [start, add(start, count), 1].map(size => ctx.one(size, 'i64'))
  return ctx.call('Range', ends)
}

/** A matrix of bool: whether the column compares to the row plus k as an operator says. */
export function pattern(
  ctx: Lowering,
  [rows = 0, cols = 0]: readonly Size[],
  op: 'Equal' | 'GreaterOrEqual' | 'LessOrEqual',
  k: Size,
): Value {
  return ctx.call(op, [positions(ctx, cols), ctx.reshaped(positions(ctx, rows, k), [rows, 1])])
}

/** An axis that is padded with its own elements. */
interface PaddedAxis {
  /** Elements before. */
  readonly size: Size
  /** Elements after. */
  readonly padded: Size
  /** Elements that are added in front; those that are cut off when negative. */
  readonly before: Size
}

/** The index in the axis that each position of the padded one repeats, for a mode of Pad. */
export function paddedIndices(ctx: Lowering, mode: string, { size, padded, before }: PaddedAxis): Value {
  const from = positions(ctx, padded, subtract(0, before))
  const one = (value: Size): Value => ctx.one(value, 'i64')
  if (mode === 'edge') return ctx.call('Min', [ctx.call('Max', [from, one(0)]), one(subtract(size, 1))])
  if (mode === 'wrap') return ctx.call('Mod', [from, one(size)])
  const period = one(maximum(multiply(2, subtract(size, 1)), 1))
  const within = ctx.call('Mod', [from, period])
  return ctx.call('Min', [within, ctx.call('Sub', [period, within])])
}
