// image.ts: resizing and sampling of images.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering, Value } from '../lowering.js'
import { axisOf } from '../views.js'
import { aroundAxis } from './reduce.js'
import { resizeTaps, type Taps, transposedTaps } from './resize-taps.js'
import type { LowerTable } from './table.js'

/** The axes that the node resizes from `from` to `to`, with their taps; roi, scales and sizes are inputs from `first` on. */
function resizedAxes(ctx: Lowering, first: number, from: readonly number[], to: readonly number[]) {
  const axes = (ctx.integersOf('axes') ?? [...from.keys()]).map(axis => axisOf(axis, from.length))
  const scales = ctx.has(first + 1) ? ctx.numbers(first + 1) : []
  const roi = ctx.has(first) && ctx.shape(first)[0] !== 0 ? ctx.numbers(first) : []
  return axes.flatMap((axis, i) => {
    const [size, out] = [from[axis]!, to[axis]!]
    const window = [roi[i] ?? 0, roi[i + axes.length] ?? 1] as const
    const taps = resizeTaps(ctx, { size, out, scale: scales[i] ?? out / size, window })
    return size === out && taps.taps.every((tap, q) => tap === q) ? [] : [{ axis, taps }]
  })
}

/** `value` with `out` positions along an axis, made of these taps. */
function resampled(ctx: Lowering, value: Value, axis: number, { taps, weights, offset, count }: Taps): Value {
  const out = taps.length / count
  const shape = value.shape.map((size, n) => (n === axis ? out : size))
  const y = ctx.scratch(numel(shape))
  ctx.step('resample', {
    ...aroundAxis(value.shape, axis),
    out,
    count,
    x: value.buffer.read(),
    y: y.write(),
    taps: ctx.constantOf('i32', [taps.length], taps).buffer.read(),
    weights: ctx.constantOf('f32', [weights.length], weights).buffer.read(),
    offset: offset && ctx.constantOf('f32', [out], offset).buffer.read(),
  })
  return { dtype: 'f32', shape, buffer: y }
}

/** x, roi, scales, sizes: one axis after the other. */
function resize(ctx: Lowering): void {
  let value = ctx.input(0)
  for (const { axis, taps } of resizedAxes(ctx, 1, ctx.shape(0), ctx.output().shape)) {
    value = resampled(ctx, value, axis, taps)
  }
  ctx.give(value)
}

/** dy, x, roi, scales, sizes → dx: the axes in the reverse order, each with its taps turned around. */
function resizeGrad(ctx: Lowering): void {
  const from = ctx.shape(1)
  let value = ctx.input(0)
  for (const { axis, taps } of resizedAxes(ctx, 2, from, ctx.shape(0)).reverse()) {
    value = resampled(ctx, value, axis, transposedTaps(taps, from[axis]!))
  }
  ctx.give(value)
}

const interpolations: Readonly<Record<string, 'nearest' | 'linear' | 'cubic'>> = {
  nearest: 'nearest',
  bilinear: 'linear',
  linear: 'linear',
  bicubic: 'cubic',
  cubic: 'cubic',
}

function gridSample(ctx: Lowering): void {
  const [batch = 0, channels = 0, ...image] = ctx.shape(0)
  ctx.step('gridSample', {
    interpolation: interpolations[ctx.text('mode')]!,
    outOfImage: ctx.text('padding_mode') as 'zeros' | 'border' | 'reflection',
    alignCorners: ctx.integer('align_corners') !== 0,
    batch,
    channels,
    image,
    points: numel(ctx.shape(1).slice(1, -1)),
    x: ctx.read(0),
    grid: ctx.read(1),
    y: ctx.write(),
  })
}

/** Lowerings of operators on images. */
export const images: LowerTable = {
  '': { Resize: ctx => ctx.inF32(resize), GridSample: ctx => ctx.inF32(gridSample) },
  [sparkDomain]: { ResizeGrad: ctx => ctx.inF32(resizeGrad) },
}
