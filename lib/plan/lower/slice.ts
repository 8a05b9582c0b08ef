// slice.ts: slices, pads, concatenations, repetitions and their gradients, as strided copies.
import { contiguousStrides, numel } from '../../core/shape.js'
import { int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import { axisOf } from '../views.js'
import { addCopy, addFill, zeros } from './copy.js'
import { expectList } from './lists.js'
import { addReduce } from './reduce.js'
import type { LowerTable } from './table.js'

/** Where a slice starts on an axis, inside of it. */
function startOf(start: number, size: number, step: number): number {
  const from = start < 0 ? start + size : start
  return step > 0 ? Math.min(Math.max(from, 0), size) : Math.min(Math.max(from, -1), size - 1)
}

/** x, starts, ends, axes, steps; ends are in the shape of the output. */
function slice(ctx: Lowering): void {
  const from = ctx.shape(0)
  const strides = contiguousStrides(from)
  const starts = ctx.integers(1)
  const axes = ctx.has(3) ? ctx.integers(3) : starts.map((_, i) => i)
  const steps = ctx.has(4) ? ctx.integers(4) : starts.map(() => 1)
  let offset = 0
  const walk = [...strides]
  for (const [i, given] of axes.entries()) {
    const axis = axisOf(given, from.length)
    offset += startOf(starts[i]!, from[axis]!, steps[i]!) * strides[axis]!
    walk[axis] = strides[axis]! * steps[i]!
  }
  const { shape } = ctx.output()
  const start = numel(shape) === 0 ? 0 : offset
  addCopy(ctx, shape, [ctx.read(0), start, walk], [ctx.write(), 0, contiguousStrides(shape)])
}

function split(ctx: Lowering): void {
  const from = ctx.shape(0)
  const strides = contiguousStrides(from)
  const axis = axisOf(ctx.integer('axis'), from.length)
  let start = 0
  for (const [o, name] of ctx.node.outputs.entries()) {
    const { shape } = ctx.output(o)
    if (name !== '') {
      const src = [ctx.read(0), start * strides[axis]!, strides] as const
      addCopy(ctx, shape, src, [ctx.write(o), 0, contiguousStrides(shape)])
    }
    start += shape[axis]!
  }
}

function concat(ctx: Lowering): void {
  const { shape } = ctx.output()
  const axis = axisOf(ctx.integer('axis'), shape.length)
  const strides = contiguousStrides(shape)
  const dst = ctx.write().buffer
  let start = 0
  for (let i = 0; i < ctx.node.inputs.length; i++) {
    const part = ctx.shape(i)
    const to = [dst.write(), start * strides[axis]!, strides] as const
    addCopy(ctx, part, [ctx.read(i), 0, contiguousStrides(part)], to)
    start += part[axis]!
  }
}

/** Each axis as one that repeats and one that moves. */
function tile(ctx: Lowering): void {
  const [from, { shape }] = [ctx.shape(0), ctx.output()]
  const [strides, to] = [contiguousStrides(from), contiguousStrides(shape)]
  const loop = from.flatMap((size, axis) => [size === 0 ? 0 : shape[axis]! / size, size])
  addCopy(
    ctx,
    loop,
    [ctx.read(0), 0, strides.flatMap(stride => [0, stride])],
    [ctx.write(), 0, to.flatMap((stride, axis) => [stride * from[axis]!, stride])],
  )
}

/** Index in an axis of `size` that position `p` of the padded axis repeats. */
function paddedIndex(mode: string, p: number, size: number): number {
  if (mode === 'edge') return Math.min(Math.max(p, 0), size - 1)
  if (mode === 'wrap') return ((p % size) + size) % size
  const period = Math.max(2 * (size - 1), 1)
  const within = ((p % period) + period) % period
  return within < size ? within : period - within
}

/** Sizes that Pad adds in front of each axis and behind it. */
function padsOf(ctx: Lowering): readonly (readonly [number, number])[] {
  const rank = ctx.shape(0).length
  const pads = ctx.integers(1)
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
      expectList(ctx, shape[axis]!)
      const indices = Array.from({ length: shape[axis]! }, (_, p) =>
        paddedIndex(mode, p - before, from[axis]!),
      )
      if (indices.some((index, p) => index !== p) || from[axis] !== shape[axis])
        value = ctx.call('Gather', [value, ctx.ints(indices)], { axis: int(axis) })
    }
    ctx.give(value)
    return
  }
  const fill = ctx.has(2) ? ctx.read(2) : ctx.scalar(0, ctx.kernelType(dtype))
  const y = ctx.write()
  addFill(ctx, shape, fill, y)
  // A negative pad crops.
  const kept = from.map((size, axis) => size + Math.min(pads[axis]![0], 0) + Math.min(pads[axis]![1], 0))
  const [strides, to] = [contiguousStrides(from), contiguousStrides(shape)]
  const offset = (steps: readonly number[], sign: number): number =>
    steps.reduce((sum, step, axis) => sum + step * Math.max(sign * pads[axis]![0], 0), 0)
  if (numel(kept) > 0)
    addCopy(ctx, kept, [ctx.read(0), offset(strides, -1), strides], [y.buffer.write(), offset(to, 1), to])
}

/** A matrix of 0 and 1 whose ones are where `holds` says. */
export function pattern(
  ctx: Lowering,
  [rows = 0, cols = 0]: readonly number[],
  holds: (row: number, col: number) => boolean,
): number[] {
  expectList(ctx, rows * cols)
  return Array.from({ length: rows * cols }, (_, i) => Number(holds(Math.floor(i / cols), i % cols)))
}

function trilu(ctx: Lowering): void {
  const [rows = 0, cols = 0] = ctx.shape(0).slice(-2)
  const k = ctx.has(1) ? ctx.integers(1)[0]! : 0
  const upper = ctx.integer('upper') !== 0
  const kept = pattern(ctx, [rows, cols], (row, col) => (upper ? col >= row + k : col <= row + k))
  ctx.give(
    ctx.call('Where', [ctx.constantOf('bool', [rows, cols], kept), ctx.input(0), ctx.one(0, ctx.dtype())]),
  )
}

/** dy, x0, x1, … → dx0, dx1, … */
function concatGrad(ctx: Lowering): void {
  const shape = ctx.shape(0)
  const axis = axisOf(ctx.integer('axis'), shape.length)
  const strides = contiguousStrides(shape)
  let start = 0
  for (let i = 1; i < ctx.node.inputs.length; i++) {
    const part = ctx.shape(i)
    const dx = ctx.result(i - 1)
    if (dx) {
      addCopy(ctx, part, [ctx.read(0), start * strides[axis]!, strides], [dx, 0, contiguousStrides(part)])
    }
    start += part[axis]!
  }
}

/** dy, x, starts, ends, axes, steps → dx */
function sliceGrad(ctx: Lowering): void {
  const [from, to] = [ctx.shape(0), ctx.shape(1)]
  const starts = ctx.integers(2)
  const axes = ctx.has(4) ? ctx.integers(4) : starts.map((_, axis) => axis)
  const steps = ctx.has(5) ? ctx.integers(5) : starts.map(() => 1)
  const strides = contiguousStrides(to)
  let offset = 0
  const moved = [...strides]
  axes.forEach((given, i) => {
    const axis = axisOf(given, to.length)
    const [size, step, wanted] = [to[axis]!, steps[i]!, starts[i]!]
    const start = Math.min(Math.max(wanted < 0 ? wanted + size : wanted, 0), step > 0 ? size : size - 1)
    offset += start * strides[axis]!
    moved[axis] = step * strides[axis]!
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
    return Math.max(0, Math.min(size - start, from[axis]! - start - before[axis]!))
  })
  const dx = zeros(ctx)
  if (numel(sizes) === 0) return
  const offsetIn = (strides: readonly number[], index: readonly number[]): number =>
    strides.reduce((sum, stride, axis) => sum + stride * index[axis]!, 0)
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
  const loop = to.flatMap((size, axis) => [size === 0 ? 0 : from[axis]! / size, size])
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
