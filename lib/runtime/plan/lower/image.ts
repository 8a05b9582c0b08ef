// image.ts: resizing and sampling of images, and normalization across channels.
import { volume } from '../../../core/shape.js'
import { int, ints } from '../../../graph/attributes.js'
import type { Lowering, Value } from '../lowering.js'
import { axisOf } from '../views.js'
import { aroundAxis } from './indexed.js'
import { resizeTaps } from './resize-taps.js'
import type { LowerTable } from './table.js'

/** x, roi, scales, sizes: one axis after the other. */
function resize(at: Lowering): void {
  const [from, { shape }] = [at.shape(0), at.output()]
  const axes = (at.integersOf('axes') ?? [...from.keys()]).map(axis => axisOf(axis, from.length))
  const scales = at.has(2) ? at.numbers(2) : []
  const roi = at.has(1) && at.shape(1)[0] !== 0 ? at.numbers(1) : []
  let [value, current] = [at.input(0), [...from]]
  for (const [i, axis] of axes.entries()) {
    const [size, out] = [from[axis]!, shape[axis]!]
    const scale = scales[i] ?? out / size
    const window = [roi[i] ?? 0, roi[i + axes.length] ?? 1] as const
    const { taps, weights, offset, count } = resizeTaps(at, { size, out, scale, window })
    if (size === out && taps.every((tap, q) => tap === q)) continue
    const next = current.map((old, n) => (n === axis ? out : old))
    const y = at.scratch(volume(next))
    at.step('resample', {
      ...{ ...aroundAxis(current, axis), out, count, x: value.buffer.read(), y: y.write() },
      ...{ taps: at.constantOf('i32', [taps.length], taps).buffer.read() },
      ...{ weights: at.constantOf('f32', [weights.length], weights).buffer.read() },
      offset: offset && at.constantOf('f32', [out], offset).buffer.read(),
    })
    current = next
    value = { dtype: 'f32', shape: next, buffer: y }
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
    ...{ batch, channels, image, points: volume(at.shape(1).slice(1, -1)) },
    ...{ x: at.read(0), grid: at.read(1), y: at.write() },
  })
}

/** x / (bias + alpha · mean of x² over `size` channels)^beta, channels outside counting as 0. */
function lrn(at: Lowering): void {
  const [n = 0, c = 0, ...rest] = at.shape(0)
  const size = at.integer('size', 1)
  const before = Math.floor((size - 1) / 2)
  const squares = at.call('Mul', [at.input(0), at.input(0)])
  const planes = at.call('Reshape', [squares, at.ints([n, 1, c, volume(rest)])])
  const mean: Value = at.call('AveragePool', [planes], {
    kernel_shape: ints([size, 1]),
    pads: ints([before, 0, size - 1 - before, 0]),
    count_include_pad: int(1),
  })
  const scaled = at.call('Mul', [mean, at.one(at.number('alpha', 1e-4))])
  const base = at.call('Add', [scaled, at.one(at.number('bias', 1))])
  const divisor = at.call('Pow', [base, at.one(at.number('beta', 0.75))])
  at.give(at.call('Div', [at.input(0), at.call('Reshape', [divisor, at.ints(at.shape(0))])]))
}

/** Lowerings of operators on images. */
export const images: LowerTable = {
  '': {
    Resize: at => at.inF32(resize),
    GridSample: at => at.inF32(gridSample),
    LRN: at => at.inF32(lrn),
  },
}
