// resize-taps.ts: taps and weights of each position of a resized axis, by the rules of Resize.
import type { Lowering } from '../lowering.js'
import { expectList } from './lists.js'

/** One axis of a resize. */
export interface ResizedAxis {
  /** Elements before. */
  readonly size: number
  /** Elements after. */
  readonly out: number
  /** out / size before rounding. */
  readonly scale: number
  /** Start and end of the part that is shown, as fractions: tf_crop_and_resize. */
  readonly window: readonly [number, number]
}

/** Taps and weights of all positions. */
export interface Taps {
  readonly taps: number[]
  readonly weights: number[]
  /** What is added; only where positions can be outside. */
  readonly offset?: number[] | undefined
  /** Taps of a position. */
  readonly count: number
}

/** Where position q is in the axis before. */
function coordinate(mode: string, q: number, { size, out, scale, window }: ResizedAxis): number {
  switch (mode) {
    case 'align_corners':
      return out === 1 ? 0 : (q * (size - 1)) / (scale * size - 1)
    case 'asymmetric':
      return q / scale
    case 'pytorch_half_pixel':
      return out === 1 ? -0.5 : (q + 0.5) / scale - 0.5
    case 'tf_half_pixel_for_nn':
      return (q + 0.5) / scale
    case 'tf_crop_and_resize': {
      const [start, end] = window
      return out > 1
        ? start * (size - 1) + (q * (end - start) * (size - 1)) / (out - 1)
        : 0.5 * (start + end) * (size - 1)
    }
    case 'half_pixel_symmetric': {
      const adjustment = out / (scale * size)
      return (size / 2) * (1 - adjustment) + (q + 0.5) / scale - 0.5
    }
    default:
      return (q + 0.5) / scale - 0.5
  }
}

function nearest(mode: string, x: number): number {
  switch (mode) {
    case 'round_prefer_ceil':
      return Math.floor(x + 0.5)
    case 'floor':
      return Math.floor(x)
    case 'ceil':
      return Math.ceil(x)
    default:
      return Math.ceil(x - 0.5)
  }
}

/** Weight at a distance: a triangle, or Keys' cubic with the parameter a. */
function kernelWeight(mode: string, a: number, distance: number): number {
  const d = Math.abs(distance)
  if (mode === 'linear') return Math.max(1 - d, 0)
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0
}

/** How a node resizes, whatever the sizes. */
export interface TapRule {
  readonly mode: string
  readonly nearestMode: string
  /** coordinate_transformation_mode */
  readonly transform: string
  readonly excludesOutside: boolean
  readonly antialiases: boolean
  /** cubic_coeff_a */
  readonly cubic: number
  /** extrapolation_value */
  readonly beyond: number
  /** @throws SparkError ERR_OUT_OF_MEMORY for too many taps */
  readonly expectTaps: (count: number) => void
}

/** The rule of a node. */
export const tapRuleOf = (ctx: Lowering): TapRule => ({
  mode: ctx.text('mode'),
  nearestMode: ctx.text('nearest_mode'),
  transform: ctx.text('coordinate_transformation_mode'),
  excludesOutside: ctx.integer('exclude_outside') !== 0,
  antialiases: ctx.integer('antialias') !== 0,
  cubic: ctx.number('cubic_coeff_a'),
  beyond: ctx.number('extrapolation_value'),
  expectTaps: count => expectList(ctx, count),
})

/** Taps of every position of one axis. */
export function resizeTaps(rule: TapRule, axis: ResizedAxis): Taps {
  const { size, out, scale } = axis
  const { mode, transform } = rule
  // Downsampling with antialias widens the window.
  const stretch = rule.antialiases ? Math.min(scale, 1) : 1
  const reach = mode === 'nearest' ? 0 : Math.ceil((mode === 'linear' ? 1 : 2) / stretch)
  const count = mode === 'nearest' ? 1 : 2 * reach
  rule.expectTaps(out * count)
  const crops = transform === 'tf_crop_and_resize'
  const divides = rule.excludesOutside || stretch < 1
  const clamp = (tap: number): number => Math.min(Math.max(tap, 0), size - 1)
  const [taps, weights, offset]: [number[], number[], number[]] = [[], [], []]
  for (let q = 0; q < out; q++) {
    const x = coordinate(transform, q, axis)
    const outside = crops && (x < 0 || x > size - 1)
    if (crops) offset.push(outside ? rule.beyond : 0)
    if (mode === 'nearest') {
      taps.push(clamp(nearest(rule.nearestMode, x)))
      weights.push(outside ? 0 : 1)
      continue
    }
    let sum = 0
    for (let index = Math.floor(x) - reach + 1; index <= Math.floor(x) + reach; index++) {
      const tap = clamp(index)
      const isOut = rule.excludesOutside && index !== tap
      const weight = isOut ? 0 : kernelWeight(mode, rule.cubic, (index - x) * stretch)
      taps.push(tap)
      weights.push(outside ? 0 : weight)
      sum += weight
    }
    if (divides && !outside) for (let t = q * count; t < (q + 1) * count; t++) weights[t] = weights[t]! / sum
  }
  return { taps, weights, offset: crops ? offset : undefined, count }
}

/** Which positions of the resized axis each of `size` elements goes to, with their weights; 0 fills up. */
export function transposedTaps({ taps, weights, count }: Taps, size: number): Taps {
  const goals = Array.from({ length: size }, (): { q: number; weight: number }[] => [])
  for (const [i, tap] of taps.entries()) {
    if (weights[i] !== 0) goals[tap]!.push({ q: Math.floor(i / count), weight: weights[i]! })
  }
  const longest = goals.reduce((max, { length }) => Math.max(max, length), 1)
  const padded = goals.flatMap(list =>
    Array.from({ length: longest }, (_, t) => list[t] ?? { q: 0, weight: 0 }),
  )
  return { taps: padded.map(({ q }) => q), weights: padded.map(({ weight }) => weight), count: longest }
}
