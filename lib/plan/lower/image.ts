// image.ts: resizing and sampling of images, and normalization across channels.
import { numel } from '../../core/shape.js'
import { int, ints } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering, Value } from '../lowering.js'
import { axisOf } from '../views.js'
import { aroundAxis } from './indexed.js'
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

/** Lowerings of operators on images. */
export const images: LowerTable = {
  '': {
    Resize: at => at.inF32(resize),
    GridSample: at => at.inF32(gridSample),
    LRN: at => at.inF32(lrn),
  },
  [sparkDomain]: { ResizeGrad: at => at.inF32(resizeGrad) },
}
