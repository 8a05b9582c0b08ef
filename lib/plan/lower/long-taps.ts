// long-taps.ts: taps and weights of a long resized axis, computed by kernels in f64 with the operations of resize-taps.ts, in
// their order, so that the bits are the same.
import { hintOf, multiply, type Size } from '../../core/size.js'
import type { Lowering } from '../lowering.js'
import type { Value } from '../value.js'
import { positions } from './positions.js'
import type { TapRule } from './resize-taps.js'

/** An axis whose sizes may be symbols. */
export interface LongAxis {
  readonly size: Size
  readonly out: Size
  /** out / size before rounding. */
  readonly scale: Size | 'exact'
}

/** Positions from which on taps are not computed on the JavaScript thread. */
export const shortAxis = 1024

/** Operations on values of f64; numbers may depend on the sizes of the axis. */
class Formulas {
  readonly #ctx: Lowering
  readonly #axis: LongAxis

  constructor(ctx: Lowering, axis: LongAxis) {
    this.#ctx = ctx
    this.#axis = axis
  }

  /** A number that depends on the sizes. */
  of(formula: (size: number, out: number, scale: number) => number): Value {
    const { size, out, scale } = this.#axis
    return this.#ctx.table('f64', [], values => {
      const [before, after] = [values.of(size), values.of(out)]
      return [formula(before, after, scale === 'exact' ? after / before : values.of(scale))]
    })
  }

  /** An operator applied to values and numbers. */
  call(op: string, ...operands: readonly (Value | number)[]): Value {
    const values = operands.map(operand =>
      typeof operand === 'number' ? this.#ctx.one(operand, 'f64') : operand,
    )
    return this.#ctx.call(op, values)
  }
}

/** Where each position is in the axis before; as `coordinate` of resize-taps.ts. */
function coordinates(f: Formulas, transform: string, q: Value): Value {
  const scale = f.of((_, __, scale) => scale)
  const half = (): Value => f.call('Div', f.call('Add', q, 0.5), scale)
  switch (transform) {
    case 'align_corners': {
      const ends = [f.of(size => size - 1), f.of((size, _, scale) => scale * size - 1)] as const
      return f.call('Div', f.call('Mul', q, ends[0]), ends[1])
    }
    case 'asymmetric':
      return f.call('Div', q, scale)
    case 'tf_half_pixel_for_nn':
      return half()
    case 'half_pixel_symmetric': {
      const shift = f.of((size, out, scale) => (size / 2) * (1 - out / (scale * size)))
      return f.call('Sub', f.call('Add', shift, half()), 0.5)
    }
    default:
      return f.call('Sub', half(), 0.5)
  }
}

function nearest(f: Formulas, mode: string, x: Value): Value {
  switch (mode) {
    case 'round_prefer_ceil':
      return f.call('Floor', f.call('Add', x, 0.5))
    case 'floor':
      return f.call('Floor', x)
    case 'ceil':
      return f.call('Ceil', x)
    default:
      return f.call('Ceil', f.call('Sub', x, 0.5))
  }
}

/** As `kernelWeight` of resize-taps.ts. */
function weightsOf(f: Formulas, { mode, cubic: a }: TapRule, d: Value): Value {
  if (mode === 'linear') return f.call('Max', f.call('Sub', 1, d), 0)
  const steep = f.call('Mul', f.call('Sub', f.call('Mul', a + 2, d), a + 3), d)
  const near = f.call('Add', f.call('Mul', steep, d), 1)
  const slope = f.call('Add', f.call('Mul', f.call('Sub', f.call('Mul', a, d), 5 * a), d), 8 * a)
  const far = f.call('Sub', f.call('Mul', slope, d), 4 * a)
  const outer = f.call('Where', f.call('Less', d, 2), far, 0)
  return f.call('Where', f.call('LessOrEqual', d, 1), near, outer)
}

/** Each row over its sum, from left to right. */
function normalized(ctx: Lowering, f: Formulas, weights: Value, count: number): Value {
  const column = (i: number): Value =>
    ctx.call('Slice', [weights, ...[i, i + 1, 1].map(number => ctx.ints([number]))])
  let sum = column(0)
  for (let i = 1; i < count; i++) sum = f.call('Add', sum, column(i))
  return f.call('Div', weights, sum)
}

/** Taps (i32) and weights (f32) of all positions, for rules whose number of taps does not depend on the scale. */
export function longTaps(
  ctx: Lowering,
  rule: TapRule,
  axis: LongAxis,
): { count: number; taps: Value; weights: Value } {
  const f = new Formulas(ctx, axis)
  rule.expectTaps(hintOf(axis.out) * (rule.mode === 'nearest' ? 1 : 2))
  const q = ctx.cast(positions(ctx, axis.out), 'f64')
  const x = coordinates(f, rule.transform, q)
  const last = f.of(size => size - 1)
  const clamped = (index: Value): Value => f.call('Min', f.call('Max', index, 0), last)
  if (rule.mode === 'nearest') {
    const taps = ctx.cast(clamped(nearest(f, rule.nearestMode, x)), 'i32')
    return { count: 1, taps, weights: ctx.call('Expand', [ctx.one(1), ctx.ints([axis.out])]) }
  }
  const reach = rule.mode === 'linear' ? 1 : 2
  const count = 2 * reach
  const offsets = Array.from({ length: count }, (_, i) => i - reach + 1)
  const rows = (value: Value): Value => ctx.reshaped(value, [axis.out, 1])
  const index = f.call('Add', rows(f.call('Floor', x)), ctx.constantOf('f64', [count], offsets))
  const tap = clamped(index)
  let weights = weightsOf(f, rule, f.call('Abs', f.call('Sub', index, rows(x))))
  if (rule.excludesOutside) {
    const inside = f.call('Where', f.call('Equal', index, tap), weights, 0)
    weights = normalized(ctx, f, inside, count)
  }
  const flat = (value: Value): Value => ctx.reshaped(value, [multiply(axis.out, count)])
  return { count, taps: flat(ctx.cast(tap, 'i32')), weights: flat(ctx.cast(weights, 'f32')) }
}
