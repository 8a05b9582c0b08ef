// image.ts: resizing and sampling of images.
import { numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering, Value } from '../lowering.js'
import { axisOf } from '../views.js'
import { aroundAxis } from './reduce.js'
import { resizeTaps, type Taps, transposedTaps } from './resize-taps.js'
import type { LowerTable } from './table.js'

/** The axes that the node resizes from `from` to `to`, with their taps; roi, scales and sizes are inputs from `first` on. */
function resizedAxes(at: Lowering, first: number, from: readonly number[], to: readonly number[]) {
  const axes = (at.integersOf('axes') ?? [...from.keys()]).map(axis => axisOf(axis, from.length))
  const scales = at.has(first + 1) ? at.numbers(first + 1) : []
  const roi = at.has(first) && at.shape(first)[0] !== 0 ? at.numbers(first) : []
  return axes.flatMap((axis, i) => {
    const [size, out] = [from[axis]!, to[axis]!]
    const window = [roi[i] ?? 0, roi[i + axes.length] ?? 1] as const
    const taps = resizeTaps(at, { size, out, scale: scales[i] ?? out / size, window })
    return size === out && taps.taps.every((tap, q) => tap === q) ? [] : [{ axis, taps }]
  })
}

/** `value` with `out` positions along an axis, made of these taps. */
function resampled(at: Lowering, value: Value, axis: number, { taps, weights, offset, count }: Taps): Value {
  const out = taps.length / count
  const shape = value.shape.map((size, n) => (n === axis ? out : size))
  const y = at.scratch(numel(shape))
  at.step('resample', {
    ...{ ...aroundAxis(value.shape, axis), out, count, x: value.buffer.read(), y: y.write() },
    ...{ taps: at.constantOf('i32', [taps.length], taps).buffer.read() },
    ...{ weights: at.constantOf('f32', [weights.length], weights).buffer.read() },
    offset: offset && at.constantOf('f32', [out], offset).buffer.read(),
  })
  return { dtype: 'f32', shape, buffer: y }
}

/** x, roi, scales, sizes: one axis after the other. */
function resize(at: Lowering): void {
  let value = at.input(0)
  for (const { axis, taps } of resizedAxes(at, 1, at.shape(0), at.output().shape)) {
    value = resampled(at, value, axis, taps)
  }
  at.give(value)
}

/** dy, x, roi, scales, sizes → dx: the axes in the reverse order, each with its taps turned around. */
function resizeGrad(at: Lowering): void {
  const from = at.shape(1)
  let value = at.input(0)
  for (const { axis, taps } of resizedAxes(at, 2, from, at.shape(0)).reverse()) {
    value = resampled(at, value, axis, transposedTaps(taps, from[axis]!))
  }
  at.give(value)
}

const interpolations: Readonly<Record<string, 'nearest' | 'linear' | 'cubic'>> = {
  nearest: 'nearest',
  bilinear: 'linear',
  linear: 'linear',
  bicubic: 'cubic',
  cubic: 'cubic',
}

function gridSample(at: Lowering): void {
  const [batch = 0, channels = 0, ...image] = at.shape(0)
  at.step('gridSample', {
    interpolation: interpolations[at.text('mode', 'linear')]!,
    outOfImage: at.text('padding_mode', 'zeros') as 'zeros' | 'border' | 'reflection',
    alignCorners: at.integer('align_corners', 0) !== 0,
    ...{ batch, channels, image, points: numel(at.shape(1).slice(1, -1)) },
    ...{ x: at.read(0), grid: at.read(1), y: at.write() },
  })
}

/** Lowerings of operators on images. */
export const images: LowerTable = {
  '': { Resize: at => at.inF32(resize), GridSample: at => at.inF32(gridSample) },
  [sparkDomain]: { ResizeGrad: at => at.inF32(resizeGrad) },
}
