// image.ts: resizing and sampling of images.

import { numel } from '../../core/shape.js'
import { areNumbers, fixSize, hintOf, lessThan, multiply, type Size, sameSize } from '../../core/size.js'
import { fixedSizes, type SizeValues } from '../../core/size-scope.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { Value } from '../value.js'
import { axisOf } from '../views.js'
import { longTaps, shortAxis } from './long-taps.js'
import { aroundAxis } from './reduce.js'
import { resizeTaps, type Taps, tapRuleOf, transposedTaps } from './resize-taps.js'
import type { LowerTable } from './table.js'

/** One axis that is resized. */
interface SymbolicAxis {
  readonly size: Size
  readonly out: Size
  /** out / size before rounding. */
  readonly scale: Size | 'exact'
  readonly window: readonly [number, number]
}

/** The axes that the node resizes from `from` to `to`; roi, scales and sizes are inputs from `first` on. */
function resizedAxes(ctx: Lowering, first: number, from: readonly Size[], to: readonly Size[]) {
  const axes = (ctx.integersOf('axes') ?? [...from.keys()]).map(axis => axisOf(axis, from.length))
  const scales = ctx.has(first + 1) ? ctx.sizes(first + 1) : []
  const roi = ctx.has(first) && ctx.shape(first)[0] !== 0 ? ctx.numbers(first) : []
  return axes.map((axis, i): SymbolicAxis & { readonly axis: number } => {
    const window = [roi[i] ?? 0, roi[i + axes.length] ?? 1] as const
    return { axis, size: from[axis]!, out: to[axis]!, scale: scales[i] ?? 'exact', window }
  })
}

/** Taps whose elements, and how many there are, may depend on sizes. */
interface SymbolicTaps {
  /** Positions. */
  readonly out: Size
  /** Taps of a position. */
  readonly count: number
  readonly taps: Value
  readonly weights: Value
  readonly offset: Value | undefined
}

/** The taps of an axis for some sizes; those for the last ones are kept. */
function tapsOf(ctx: Lowering, { size, out, scale, window }: SymbolicAxis): (values: SizeValues) => Taps {
  const rule = tapRuleOf(ctx)
  let last: { readonly values: SizeValues; readonly taps: Taps } | undefined
  return values => {
    if (last?.values === values) return last.taps
    const [before, after] = [values.of(size), values.of(out)]
    const ratio = scale === 'exact' ? after / before : values.of(scale)
    const taps = resizeTaps(rule, { size: before, out: after, scale: ratio, window })
    last = { values, taps }
    return taps
  }
}

const examples: SizeValues = { of: hintOf, key: '' }

/** An axis for the example sizes only. */
function fixedAxis<Axis extends SymbolicAxis>(axis: Axis): Axis {
  const scale = axis.scale === 'exact' ? axis.scale : fixSize(axis.scale)
  return { ...axis, size: fixSize(axis.size), out: fixSize(axis.out), scale }
}

/** Whether each position is what it was. */
const isIdentity = ({ size, out }: SymbolicAxis, { taps, weights, count }: Taps): boolean =>
  sameSize(size, out) &&
  weights.filter(weight => weight !== 0).length === taps.length / count &&
  taps.every((tap, i) => weights[i] === 0 || (weights[i] === 1 && tap === Math.floor(i / count)))

/** Transforms that move positions of an axis as long as it was. */
const movingTransforms = ['tf_half_pixel_for_nn', 'tf_crop_and_resize']

/** Whether the place of each position is itself, by the formulas of all other transforms. */
const keepsPositions = (ctx: Lowering, { size, out, scale }: SymbolicAxis): boolean =>
  !movingTransforms.includes(ctx.text('coordinate_transformation_mode')) &&
  (scale === 'exact' || scale === 1) &&
  sameSize(size, out)

/** The taps of an axis; undefined where each position is what it was. */
function symbolicTaps(ctx: Lowering, axis: SymbolicAxis): SymbolicTaps | undefined {
  if (keepsPositions(ctx, axis)) return undefined
  const { size, out, scale } = axis
  const isSymbolic = !areNumbers([size, out, scale === 'exact' ? 1 : scale])
  const mayKeep = ctx.text('mode') === 'nearest' && scale !== 'exact' && scale !== 1
  if (isSymbolic && (variesByScale(ctx) || (mayKeep && sameSize(size, out))))
    return symbolicTaps(ctx, fixedAxis(axis))
  if (lessThan(shortAxis, out) && !variesByScale(ctx))
    return { out, offset: undefined, ...longTaps(ctx, tapRuleOf(ctx), axis) }
  const tapsFor = tapsOf(ctx, axis)
  const example = tapsFor(examples)
  if (isIdentity(axis, example)) return undefined
  if (!isSymbolic) return constantTaps(ctx, example)
  const { count } = example
  const length = multiply(out, count)
  const taps = ctx.table('i32', [length], values => tapsFor(values).taps)
  const weights = ctx.table('f32', [length], values => tapsFor(values).weights)
  return { out, count, taps, weights, offset: undefined }
}

/** Whether the number of taps depends on the scale, or the offset on the window. */
const variesByScale = (ctx: Lowering): boolean =>
  ctx.integer('antialias') !== 0 || ctx.text('coordinate_transformation_mode') === 'tf_crop_and_resize'

function constantTaps(ctx: Lowering, { taps, weights, offset, count }: Taps): SymbolicTaps {
  const out = taps.length / count
  return {
    out,
    count,
    taps: ctx.constantOf('i32', [taps.length], taps),
    weights: ctx.constantOf('f32', [weights.length], weights),
    offset: offset && ctx.constantOf('f32', [out], offset),
  }
}

/** `value` with `out` positions along an axis, made of these taps. */
function resampled(ctx: Lowering, value: Value, axis: number, made: SymbolicTaps): Value {
  const { out, count, taps, weights, offset } = made
  const shape = value.shape.map((size, n) => (n === axis ? out : size))
  const y = ctx.scratch(numel(shape))
  ctx.step('resample', {
    ...aroundAxis(value.shape, axis),
    out,
    count,
    x: value.buffer.read(),
    y: y.write(),
    taps: taps.buffer.read(),
    weights: weights.buffer.read(),
    offset: offset?.buffer.read(),
  })
  return { dtype: 'f32', shape, buffer: y }
}

/**
 * x, roi, scales, sizes: one axis after the other. Nearest elements are found along the last axis first, while there are few of
 * them: behind it whole lines are copied.
 */
function resize(ctx: Lowering): void {
  let value = ctx.input(0)
  const axes = resizedAxes(ctx, 1, ctx.shape(0), ctx.output().shape)
  for (const axis of ctx.text('mode') === 'nearest' ? axes.sort((a, b) => b.axis - a.axis) : axes) {
    const taps = symbolicTaps(ctx, axis)
    if (taps) value = resampled(ctx, value, axis.axis, taps)
  }
  ctx.give(value)
}

/** dy, x, roi, scales, sizes → dx: the axes in the reverse order, each with its taps turned around. */
function resizeGrad(ctx: Lowering): void {
  const from = ctx.shape(1)
  let value = ctx.input(0)
  for (const axis of resizedAxes(ctx, 2, from, ctx.shape(0)).reverse().map(fixedAxis)) {
    const taps = tapsOf(ctx, axis)(fixedSizes)
    if (isIdentity(axis, taps)) continue
    const transposed = transposedTaps(taps, fixSize(axis.size))
    value = resampled(ctx, value, axis.axis, constantTaps(ctx, transposed))
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
