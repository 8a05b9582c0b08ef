// slice.ts: slices, pads, concatenations, repetitions and their gradients, as strided copies.

import { contiguousStrides, numel } from '../../core/shape.js'
import {
  add,
  lessThan,
  maximum,
  minimum,
  multiply,
  partOf,
  type Size,
  sameSize,
  subtract,
} from '../../core/size.js'
import { int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import { sliceBounds } from '../../graph/shapes/dimensions.js'
import type { Lowering } from '../lowering.js'
import { axisOf } from '../views.js'
import { addCopy, addFill, zeros } from './copy.js'
import { appendToState, padState } from './growing.js'
import { paddedIndices, pattern } from './positions.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'

/** Where a slice starts on an axis, inside of it. */
const startOf = (start: Size, size: Size, step: number): Size => sliceBounds(size, start, 0, step)[0]

/** x, starts, ends, axes, steps; ends are in the shape of the output. */
function slice(ctx: Lowering): void {
  const from = ctx.shape(0)
  const strides = contiguousStrides(from)
  const starts = ctx.wholes(1)
  const axes = ctx.has(3) ? ctx.integers(3) : starts.map((_, i) => i)
  const steps = ctx.has(4) ? ctx.integers(4) : starts.map(() => 1)
  let offset: Size = 0
  const walk = [...strides]
  for (const [i, given] of axes.entries()) {
    const axis = axisOf(given, from.length)
    const start = startOf(starts[i]!, from[axis]!, steps[i]!)
    offset = add(offset, multiply(start, strides[axis]!))
    walk[axis] = multiply(strides[axis]!, steps[i]!)
  }
  const { shape } = ctx.output()
  const start = sameSize(numel(shape), 0) ? 0 : offset
  addCopy(ctx, shape, [ctx.read(0), start, walk], [ctx.write(), 0, contiguousStrides(shape)])
}

function split(ctx: Lowering): void {
  const from = ctx.shape(0)
  const strides = contiguousStrides(from)
  const axis = axisOf(ctx.integer('axis'), from.length)
  let start: Size = 0
  for (const [o, name] of ctx.node.outputs.entries()) {
    const { shape } = ctx.output(o)
    if (name !== '') {
      const src = [ctx.read(0), multiply(start, strides[axis]!), strides] as const
      addCopy(ctx, shape, src, [ctx.write(o), 0, contiguousStrides(shape)])
    }
    start = add(start, shape[axis]!)
  }
}

function concat(ctx: Lowering): void {
  const { shape } = ctx.output()
  const axis = axisOf(ctx.integer('axis'), shape.length)
  if (appendToState(ctx, axis)) return
  const strides = contiguousStrides(shape)
  const dst = ctx.write().buffer
  let start: Size = 0
  for (let i = 0; i < ctx.node.inputs.length; i++) {
    const part = ctx.shape(i)
    const to = [dst.write(), multiply(start, strides[axis]!), strides] as const
    addCopy(ctx, part, [ctx.read(i), 0, contiguousStrides(part)], to)
    start = add(start, part[axis]!)
  }
}

/** Each axis as one that repeats and one that moves. */
function tile(ctx: Lowering): void {
  const [from, { shape }] = [ctx.shape(0), ctx.output()]
  const [strides, to] = [contiguousStrides(from), contiguousStrides(shape)]
  const loop = from.flatMap((size, axis) => [partOf(shape[axis]!, size), size])
  addCopy(
    ctx,
    loop,
    [ctx.read(0), 0, strides.flatMap(stride => [0, stride])],
    [ctx.write(), 0, to.flatMap((stride, axis) => [multiply(stride, from[axis]!), stride])],
  )
}

/** Sizes that Pad adds in front of each axis and behind it. */
function padsOf(ctx: Lowering): readonly (readonly [Size, Size])[] {
  const rank = ctx.shape(0).length
  const pads = ctx.wholes(1)
  const axes = ctx.has(3) ? ctx.integers(3).map(axis => axisOf(axis, rank)) : [...ctx.shape(0).keys()]
  return ctx.shape(0).map((_, axis) => {
    const i = axes.indexOf(axis)
    return i < 0 ? [0, 0] : [pads[i]!, pads[i + axes.length]!]
  })
}

function pad(ctx: Lowering): void {
  const mode = ctx.text('mode')
  const [pads, from, { shape, dtype }] = [padsOf(ctx), ctx.shape(0), ctx.output()]
  if (mode !== 'constant') {
    let value = ctx.input(0)
    for (const [axis, [before]] of pads.entries()) {
      const [size, padded] = [from[axis]!, shape[axis]!]
      if (before === 0 && sameSize(size, padded)) continue
      const indices = paddedIndices(ctx, mode, { size, padded, before })
      value = ctx.call('Gather', [value, indices], { axis: int(axis) })
    }
    ctx.give(value)
    return
  }
  if (padState(ctx, pads)) return
  const fill = ctx.has(2) ? ctx.read(2) : ctx.scalar(0, ctx.kernelType(dtype))
  const y = ctx.write()
  addFill(ctx, shape, fill, y)
  // A negative pad crops.
  const kept = from.map((size, axis) => add(size, minimum(pads[axis]![0], 0), minimum(pads[axis]![1], 0)))
  const [strides, to] = [contiguousStrides(from), contiguousStrides(shape)]
  const offset = (steps: readonly Size[], sign: number): Size =>
    add(...steps.map((step, axis) => multiply(step, maximum(multiply(sign, pads[axis]![0]), 0))))
  if (!lessThan(numel(kept), 1))
    addCopy(ctx, kept, [ctx.read(0), offset(strides, -1), strides], [y.buffer.write(), offset(to, 1), to])
}

function trilu(ctx: Lowering): void {
  const [rows = 0, cols = 0] = ctx.shape(0).slice(-2)
  const k = ctx.has(1) ? ctx.wholes(1)[0]! : 0
  const upper = ctx.integer('upper') !== 0
  const kept = pattern(ctx, [rows, cols], upper ? 'GreaterOrEqual' : 'LessOrEqual', k)
  ctx.give(ctx.call('Where', [kept, ctx.input(0), ctx.one(0, ctx.dtype())]))
}

/** dy, x0, x1, … → dx0, dx1, … */
function concatGrad(ctx: Lowering): void {
  const shape = ctx.shape(0)
  const axis = axisOf(ctx.integer('axis'), shape.length)
  const strides = contiguousStrides(shape)
  let start: Size = 0
  for (let i = 1; i < ctx.node.inputs.length; i++) {
    const part = ctx.shape(i)
    const dx = ctx.result(i - 1)
    if (dx) {
      addCopy(
        ctx,
        part,
        [ctx.read(0), multiply(start, strides[axis]!), strides],
        [dx, 0, contiguousStrides(part)],
      )
    }
    start = add(start, part[axis]!)
  }
}

/** dy, x, starts, ends, axes, steps → dx */
function sliceGrad(ctx: Lowering): void {
  const [from, to] = [ctx.shape(0), ctx.shape(1)]
  const starts = ctx.integers(2)
  const axes = ctx.has(4) ? ctx.integers(4) : starts.map((_, axis) => axis)
  const steps = ctx.has(5) ? ctx.integers(5) : starts.map(() => 1)
  const strides = contiguousStrides(to)
  let offset: Size = 0
  const moved = [...strides]
  axes.forEach((given, i) => {
    const axis = axisOf(given, to.length)
    const [size, step, wanted] = [to[axis]!, steps[i]!, starts[i]!]
    const start = maximum(0, startOf(wanted, size, step))
    offset = add(offset, multiply(start, strides[axis]!))
    moved[axis] = multiply(step, strides[axis]!)
  })
  const dx = zeros(ctx)
  if (numel(from) === 0) return
  addCopy(ctx, from, [ctx.read(0), 0, contiguousStrides(from)], [dx.update(), offset, moved])
}

/** dy, x, pads, value, axes → dx; negative pads cut off. */
function padGrad(ctx: Lowering): void {
  if (ctx.text('mode') !== 'constant') throw ctx.unsupported('only constant padding has a gradient')
  const [from, to] = [ctx.shape(0), ctx.shape(1)]
  const pads = ctx.integers(2)
  const axes = ctx.has(4) ? ctx.integers(4).map(axis => axisOf(axis, to.length)) : to.map((_, axis) => axis)
  const before = to.map((_, axis) => (axes.includes(axis) ? pads[axes.indexOf(axis)]! : 0))
  const starts = before.map(pad => Math.max(0, -pad))
  const sizes = to.map((size, axis) => {
    const start = starts[axis]!
    return maximum(0, minimum(subtract(size, start), subtract(from[axis]!, start + before[axis]!)))
  })
  const dx = zeros(ctx)
  if (numel(sizes) === 0) return
  const offsetIn = (strides: readonly Size[], index: readonly Size[]): Size =>
    add(...strides.map((stride, axis) => multiply(stride, index[axis]!)))
  const [source, target] = [contiguousStrides(from), contiguousStrides(to)]
  const first = starts.map((start, axis) => start + before[axis]!)
  addCopy(
    ctx,
    sizes,
    [ctx.read(0), offsetIn(source, first), source],
    [dx.update(), offsetIn(target, starts), target],
  )
}

/** dy, x → dx: each axis is one that repeats, which is summed over, and one that moves. */
function tileGrad(ctx: Lowering): void {
  const [from, to] = [ctx.shape(0), ctx.shape(1)]
  const loop = to.flatMap((size, axis) => [partOf(from[axis]!, size), size])
  const repeats = to.map((_, axis) => 2 * axis)
  addReduce(ctx, 'sum', [ctx.read(0), loop], new Set(repeats), ctx.write())
}

/** Lowerings of operators that cut, join, repeat and pad. */
export const slicing: LowerTable = {
  '': { Slice: slice, Split: split, Concat: concat, Tile: tile, Pad: pad, Trilu: trilu },
  [sparkDomain]: {
    SliceGrad: sliceGrad,
    ConcatGrad: concatGrad,
    TileGrad: tileGrad,
    PadGrad: padGrad,
  },
}
