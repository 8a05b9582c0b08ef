// gradients.ts: gradients of operators that move elements: dx is dy at other places, and 0 elsewhere.
import { contiguousStrides, numel } from '../../core/shape.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Lowering } from '../lowering.js'
import type { Buffer, Operand } from '../program.js'
import { axisOf } from '../views.js'
import { addReduce, reducedAxes } from './reduce.js'
import { addCopy } from './shape.js'
import type { LowerTable } from './table.js'

/** Memory for output `o`, filled with 0. */
export function zeros(at: Lowering, o = 0): Buffer {
  const { buffer } = at.write(o)
  addCopy(at, [buffer.count], [at.scalar(0), 0, [0]], [buffer.write(), 0, [1]])
  return buffer
}

/** dy, x0, x1, … → dx0, dx1, … */
function concatGrad(at: Lowering): void {
  const shape = at.shape(0)
  const axis = axisOf(at.integer('axis', 0), shape.length)
  const strides = contiguousStrides(shape)
  let start = 0
  for (let i = 1; i < at.node.inputs.length; i++) {
    const part = at.shape(i)
    const dx = at.result(i - 1)
    if (dx) {
      addCopy(at, part, [at.read(0), start * strides[axis]!, strides], [dx, 0, contiguousStrides(part)])
    }
    start += part[axis]!
  }
}

/** dy, x, starts, ends, axes, steps → dx */
function sliceGrad(at: Lowering): void {
  const [from, to] = [at.shape(0), at.shape(1)]
  const starts = at.integers(2)
  const axes = at.has(4) ? at.integers(4) : starts.map((_, axis) => axis)
  const steps = at.has(5) ? at.integers(5) : starts.map(() => 1)
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
  const dx = zeros(at)
  if (numel(from) === 0) return
  addCopy(at, from, [at.read(0), 0, contiguousStrides(from)], [dx.update(), offset, moved])
}

/** dy, x, pads, value, axes → dx; negative pads cut off. */
function padGrad(at: Lowering): void {
  if (at.text('mode', 'constant') !== 'constant') throw at.unsupported('only constant padding has a gradient')
  const [from, to] = [at.shape(0), at.shape(1)]
  const pads = at.integers(2)
  const axes = at.has(4) ? at.integers(4).map(axis => axisOf(axis, to.length)) : to.map((_, axis) => axis)
  const before = to.map((_, axis) => (axes.includes(axis) ? pads[axes.indexOf(axis)]! : 0))
  const starts = before.map(pad => Math.max(0, -pad))
  const sizes = to.map((size, axis) => {
    const start = starts[axis]!
    return Math.max(0, Math.min(size - start, from[axis]! - start - before[axis]!))
  })
  const dx = zeros(at)
  if (numel(sizes) === 0) return
  const offsetIn = (strides: readonly number[], index: readonly number[]): number =>
    strides.reduce((sum, stride, axis) => sum + stride * index[axis]!, 0)
  const [source, target] = [contiguousStrides(from), contiguousStrides(to)]
  const first = starts.map((start, axis) => start + before[axis]!)
  addCopy(
    at,
    sizes,
    [at.read(0), offsetIn(source, first), source],
    [dx.update(), offsetIn(target, starts), target],
  )
}

/** dy, x, indices → dx: elements that were read more than once get the sum. */
function gatherGrad(at: Lowering): void {
  const shape = at.shape(1)
  const axis = axisOf(at.integer('axis', 0), shape.length)
  const [outer, size, inner] = [numel(shape.slice(0, axis)), shape[axis]!, numel(shape.slice(axis + 1))]
  const count = numel(at.shape(2))
  const dx = zeros(at)
  at.step('scatter', {
    ...{ fn: 'add', dtype: 'f32', shape: [outer, count, inner], strides: [size * inner, 0, 1] },
    ...{ indexStrides: [0, 1, 0], steps: [inner], limits: [size], indices: indicesOf(at, 2) },
    ...{ updates: at.read(0), y: dx.update() },
  })
}

/** Input `i` as i64. */
function indicesOf(at: Lowering, i: number): Operand {
  const { dtype, buffer } = at.input(i)
  if (dtype === 'i64') return buffer.read()
  if (dtype !== 'i32') throw at.unsupported(`indices of ${dtype} are not supported`)
  const wide = at.scratch(buffer.count, 'i64')
  at.step('cast', {
    ...{ srcDtype: 'i32', dstDtype: 'i64', count: buffer.count, saturate: false },
    ...{ src: buffer.read(), dst: wide.write() },
  })
  return wide.read()
}

/** dy, x, axes → dx: the first of the elements that equal the largest or smallest one gets dy. */
function extremeGrad(at: Lowering): void {
  const shape = at.shape(1)
  const axes = [...reducedAxes(at, 1)].sort((a, b) => a - b)
  const [first = 0, last = -1] = [axes[0], axes.at(-1)]
  if (last - first + 1 !== axes.length) throw at.unsupported('only neighbouring axes have a gradient')
  const outer = numel(shape.slice(0, first))
  const [size, inner] = [numel(shape.slice(first, last + 1)), numel(shape.slice(last + 1))]
  const indices = at.scratch(outer * inner, 'i64')
  const dx = zeros(at)
  at.step('topK', {
    ...{ dtype: 'f32', outer, size, inner, k: 1, lastFirst: false, x: at.read(1), indices: indices.write() },
    largest: at.text('of', 'max') === 'max',
  })
  at.step('scatter', {
    ...{ fn: 'assign', dtype: 'f32', shape: [outer, inner], strides: [size * inner, 1] },
    ...{ indexStrides: [inner, 1], steps: [inner], limits: [size], indices: indices.read() },
    ...{ updates: at.read(0), y: dx.update() },
  })
}

/** dy, x → dx: each axis is one that repeats, which is summed over, and one that moves. */
function tileGrad(at: Lowering): void {
  const [from, to] = [at.shape(0), at.shape(1)]
  const loop = to.flatMap((size, axis) => [size === 0 ? 0 : from[axis]! / size, size])
  const repeats = to.map((_, axis) => 2 * axis)
  addReduce(at, 'sum', [at.read(0), loop], new Set(repeats), at.write())
}

/** Lowerings of gradients. */
export const gradients: LowerTable = {
  [sparkDomain]: {
    ConcatGrad: concatGrad,
    SliceGrad: sliceGrad,
    PadGrad: padGrad,
    TileGrad: tileGrad,
    GatherGrad: gatherGrad,
    ReduceExtremeGrad: extremeGrad,
  },
}
