// grid-sample.ts: an image at the points of a grid, in plain TypeScript.
import { clamp, roundHalfEven } from '../../core/rounding.js'
import { numel } from '../../core/shape.js'
import type { GridSampleArgs } from '../kernels.js'
import type { KernelRows } from './row.js'
import { expectAxes } from './strides.js'

/** Elements along one axis and their weights; undefined is outside, where everything is 0. */
type Taps = readonly (readonly [index: number | undefined, weight: number])[]

/** Mirrors x at the ends of [low, high] until it is inside. */
function reflect(x: number, low: number, high: number): number {
  if (x >= low && x <= high) return x
  const range = high - low
  if (!(range > 0)) return low
  const beyond = x < low ? low - x : x - high
  const turns = Math.floor(beyond / range)
  const rest = beyond - turns * range
  return x < low === (turns % 2 === 0) ? low + rest : high - rest
}

/** Keys' cubic with a = −0.75. */
function cubicWeights(t: number): number[] {
  const a = -0.75
  const near = (d: number): number => ((a + 2) * d - (a + 3)) * d * d + 1
  const far = (d: number): number => ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
  return [far(1 + t), near(t), near(1 - t), far(2 - t)]
}

function tapsAt(
  { interpolation, outOfImage, alignCorners }: GridSampleArgs,
  coordinate: number,
  size: number,
): Taps {
  const [low, high] = alignCorners ? [0, size - 1] : [-0.5, size - 0.5]
  let x = alignCorners ? ((coordinate + 1) / 2) * (size - 1) : ((coordinate + 1) * size - 1) / 2
  if (!Number.isFinite(x)) x = -2 - size
  if (interpolation === 'nearest') x = roundHalfEven(x)
  if (outOfImage === 'border') x = clamp(x, 0, size - 1)
  if (outOfImage === 'reflection') x = reflect(x, low, high)
  const element = (index: number): number | undefined => {
    if (index >= 0 && index < size) return index
    if (outOfImage === 'zeros') return undefined
    return clamp(outOfImage === 'border' ? index : Math.trunc(reflect(index, low, high)), 0, size - 1)
  }
  const floor = Math.floor(x)
  const rest = x - floor
  if (interpolation === 'nearest') return [[element(Math.trunc(x)), 1]]
  const weights = interpolation === 'linear' ? [1 - rest, rest] : cubicWeights(rest)
  const first = interpolation === 'linear' ? floor : floor - 1
  return weights.map((weight, i) => [element(first + i), weight] as const)
}

/** An image at the points of a grid */
function gridSample(args: GridSampleArgs): void {
  const { batch, channels, points, image, x, grid, y } = args
  const plane = numel(image)
  for (let n = 0; n < batch * points; n++) {
    const [sample, point] = [Math.floor(n / points), n % points]
    let taps: { offset: number; weight: number }[] = [{ offset: 0, weight: 1 }]
    image.forEach((size, axis) => {
      const coordinate = grid[n * image.length + image.length - 1 - axis]!
      const along = tapsAt(args, coordinate, size).filter(([index]) => index !== undefined)
      taps = taps.flatMap(({ offset, weight }) =>
        along.map(([index, factor]) => ({ offset: offset * size + index!, weight: weight * factor })),
      )
    })
    for (let channel = sample * channels; channel < (sample + 1) * channels; channel++) {
      y[channel * points + point] = taps.reduce(
        (sum, { offset, weight }) => sum + weight * x[channel * plane + offset]!,
        0,
      )
    }
  }
}

/** Contract of image sampling. */
export const gridSampleRows: KernelRows<'gridSample'> = {
  gridSample: {
    kernel: gridSample,
    sizes: ['batch', 'channels', 'points'],
    check: args => expectAxes(args, 'image'),
    operands: ({ batch, channels, points, image }) => ({
      x: batch * channels * numel(image),
      grid: batch * points * image.length,
      y: batch * channels * points,
    }),
  },
}
