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

/** Taps of every position of one axis of the node. */
export function resizeTaps(ctx: Lowering, axis: ResizedAxis): Taps {
  const { size, out, scale } = axis
  const [mode, transform] = [ctx.text('mode'), ctx.text('coordinate_transformation_mode')]
  const excludes = ctx.integer('exclude_outside') !== 0
  // Downsampling with antialias widens the window.
  const stretch = ctx.integer('antialias') !== 0 ? Math.min(scale, 1) : 1
  const reach = mode === 'nearest' ? 0 : Math.ceil((mode === 'linear' ? 1 : 2) / stretch)
  const count = mode === 'nearest' ? 1 : 2 * reach
  expectList(ctx, out * count)
  const crops = transform === 'tf_crop_and_resize'
  const clamp = (tap: number): number => Math.min(Math.max(tap, 0), size - 1)
  const result = { taps: [] as number[], weights: [] as number[], offset: [] as number[] }
  for (let q = 0; q < out; q++) {
    const x = coordinate(transform, q, axis)
    const outside = crops && (x < 0 || x > size - 1)
    result.offset.push(outside ? ctx.number('extrapolation_value') : 0)
    if (mode === 'nearest') {
      result.taps.push(clamp(nearest(ctx.text('nearest_mode'), x)))
      result.weights.push(outside ? 0 : 1)
      continue
    }
    const indices = Array.from({ length: count }, (_, t) => Math.floor(x) - reach + 1 + t)
    const a = ctx.number('cubic_coeff_a')
    const raw = indices.map(index => kernelWeight(mode, a, (index - x) * stretch))
    const kept = raw.map((weight, t) => (excludes && indices[t] !== clamp(indices[t]!) ? 0 : weight))
    const sum = excludes || stretch < 1 ? kept.reduce((total, weight) => total + weight, 0) : 1
    for (const index of indices) result.taps.push(clamp(index))
    for (const weight of kept) result.weights.push(outside ? 0 : weight / sum)
  }
  return { ...result, offset: crops ? result.offset : undefined, count }
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
