// move.ts: operators that cut, join, repeat, pad and make tensors.

import { SparkError } from '../../core/errors.js'
import { contiguousStrides, numel } from '../../core/shape.js'
import { int, ints, tensorOf } from '../../graph/attributes.js'
import { Constant } from '../../graph/constant.js'
import type { Lowering, Value } from '../lowering.js'
import type { Operand } from '../program.js'
import { axisOf } from '../views.js'
import { expectList } from './lists.js'
import { addCopy } from './shape.js'
import type { LowerTable } from './table.js'

/** Adds dst = value everywhere. */
function addFill(at: Lowering, shape: readonly number[], value: Operand, dst: Operand): void {
  const strides = contiguousStrides(shape)
  addCopy(at, shape, [value, 0, shape.map(() => 0)], [dst, 0, strides])
}

/** Where a slice starts on an axis, inside of it. */
function startOf(start: number, size: number, step: number): number {
  const from = start < 0 ? start + size : start
  return step > 0 ? Math.min(Math.max(from, 0), size) : Math.min(Math.max(from, -1), size - 1)
}

/** x, starts, ends, axes, steps; ends are in the shape of the output. */
function slice(at: Lowering): void {
  const from = at.shape(0)
  const strides = contiguousStrides(from)
  const starts = at.integers(1)
  const axes = at.has(3) ? at.integers(3) : starts.map((_, i) => i)
  const steps = at.has(4) ? at.integers(4) : starts.map(() => 1)
  let offset = 0
  const walk = [...strides]
  for (const [i, given] of axes.entries()) {
    const axis = axisOf(given, from.length)
    offset += startOf(starts[i]!, from[axis]!, steps[i]!) * strides[axis]!
    walk[axis] = strides[axis]! * steps[i]!
  }
  const { shape } = at.output()
  const start = numel(shape) === 0 ? 0 : offset
  addCopy(at, shape, [at.read(0), start, walk], [at.write(), 0, contiguousStrides(shape)])
}

function split(at: Lowering): void {
  const from = at.shape(0)
  const strides = contiguousStrides(from)
  const axis = axisOf(at.integer('axis', 0), from.length)
  let start = 0
  for (const [o, name] of at.node.outputs.entries()) {
    const { shape } = at.output(o)
    if (name !== '') {
      const src = [at.read(0), start * strides[axis]!, strides] as const
      addCopy(at, shape, src, [at.write(o), 0, contiguousStrides(shape)])
    }
    start += shape[axis]!
  }
}

/** Each axis as one that repeats and one that moves. */
function tile(at: Lowering): void {
  const [from, { shape }] = [at.shape(0), at.output()]
  const [strides, to] = [contiguousStrides(from), contiguousStrides(shape)]
  const loop = from.flatMap((size, axis) => [size === 0 ? 0 : shape[axis]! / size, size])
  addCopy(
    at,
    loop,
    [at.read(0), 0, strides.flatMap(stride => [0, stride])],
    [at.write(), 0, to.flatMap((stride, axis) => [stride * from[axis]!, stride])],
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
function padsOf(at: Lowering): readonly (readonly [number, number])[] {
  const rank = at.shape(0).length
  const pads = at.integers(1)
  const axes = at.has(3) ? at.integers(3).map(axis => axisOf(axis, rank)) : [...at.shape(0).keys()]
  return at.shape(0).map((_, axis) => {
    const i = axes.indexOf(axis)
    return i < 0 ? [0, 0] : [pads[i]!, pads[i + axes.length]!]
  })
}

function pad(at: Lowering): void {
  const mode = at.text('mode', 'constant')
  const [pads, from, { shape, dtype }] = [padsOf(at), at.shape(0), at.output()]
  if (mode !== 'constant') {
    let value = at.input(0)
    for (const [axis, [before]] of pads.entries()) {
      expectList(at, shape[axis]!)
      const indices = Array.from({ length: shape[axis]! }, (_, p) =>
        paddedIndex(mode, p - before, from[axis]!),
      )
      if (indices.some((index, p) => index !== p) || from[axis] !== shape[axis])
        value = at.call('Gather', [value, at.ints(indices)], { axis: int(axis) })
    }
    at.give(value)
    return
  }
  const fill = at.has(2) ? at.read(2) : at.scalar(0, at.kernelType(dtype))
  const y = at.write()
  addFill(at, shape, fill, y)
  // A negative pad crops.
  const kept = from.map((size, axis) => size + Math.min(pads[axis]![0], 0) + Math.min(pads[axis]![1], 0))
  const [strides, to] = [contiguousStrides(from), contiguousStrides(shape)]
  const offset = (steps: readonly number[], sign: number): number =>
    steps.reduce((sum, step, axis) => sum + step * Math.max(sign * pads[axis]![0], 0), 0)
  if (numel(kept) > 0)
    addCopy(at, kept, [at.read(0), offset(strides, -1), strides], [y.buffer.write(), offset(to, 1), to])
}

/** x through a reshape, a transpose and another reshape, to the shape of the output. */
function rearrange(at: Lowering, shape: readonly number[], order: readonly number[]): void {
  const parts = at.reshaped(at.input(0), shape)
  const moved = at.call('Transpose', [parts], { perm: ints(order) })
  at.give(at.reshaped(moved, at.output().shape))
}

function depthToSpace(at: Lowering): void {
  const [n = 0, c = 0, h = 0, w = 0] = at.shape(0)
  const block = at.integer('blocksize', 1)
  const depth = c / block / block
  if (at.text('mode', 'DCR') === 'CRD') rearrange(at, [n, depth, block, block, h, w], [0, 1, 4, 2, 5, 3])
  else rearrange(at, [n, block, block, depth, h, w], [0, 3, 4, 1, 5, 2])
}

function spaceToDepth(at: Lowering): void {
  const [n = 0, c = 0, h = 0, w = 0] = at.shape(0)
  const block = at.integer('blocksize', 1)
  rearrange(at, [n, c, h / block, block, w / block, block], [0, 3, 5, 1, 2, 4])
}

/** A matrix of 0 and 1 whose ones are where `holds` says. */
function pattern(
  at: Lowering,
  [rows = 0, cols = 0]: readonly number[],
  holds: (row: number, col: number) => boolean,
): number[] {
  expectList(at, rows * cols)
  return Array.from({ length: rows * cols }, (_, i) => Number(holds(Math.floor(i / cols), i % cols)))
}

function trilu(at: Lowering): void {
  const [rows = 0, cols = 0] = at.shape(0).slice(-2)
  const k = at.has(1) ? at.integers(1)[0]! : 0
  const upper = at.integer('upper', 1) !== 0
  const kept = pattern(at, [rows, cols], (row, col) => (upper ? col >= row + k : col <= row + k))
  at.give(at.call('Where', [at.constantOf('bool', [rows, cols], kept), at.input(0), at.one(0, at.dtype())]))
}

function eyeLike(at: Lowering): void {
  const { shape, dtype } = at.output()
  const k = at.integer('k', 0)
  const ones = pattern(at, shape, (row, col) => col === row + k)
  at.give(at.constantOf(at.kernelType(dtype), shape, ones))
}

/** 0, 1, 2, … */
function counting(count: number): Float64Array {
  try {
    return Float64Array.from({ length: count }, (_, i) => i)
  } catch (cause) {
    throw new SparkError('ERR_OUT_OF_MEMORY', `a list of ${count} numbers does not fit`, { cause })
  }
}

/** start, limit, delta: start + i · delta, computed in the type of the output. */
function range(at: Lowering): void {
  const { shape, dtype } = at.output()
  const counts = at.asValue(Constant.from('f64', shape, counting(shape[0]!)))
  const steps = at.call('Mul', [at.cast(counts, at.kernelType(dtype)), at.input(2)])
  at.give(at.call('Add', [steps, at.input(0)]))
}

function constantOfShape(at: Lowering): void {
  const { shape, dtype } = at.output()
  const value = tensorOf(at.node, 'value')
  const fill: Value = value ? at.asValue(value) : at.one(0, at.kernelType(dtype))
  addFill(at, shape, fill.buffer.read(), at.write())
}

/** Lowerings of operators that move elements. */
export const movement: LowerTable = {
  '': {
    Slice: slice,
    Split: split,
    Tile: tile,
    Pad: pad,
    DepthToSpace: depthToSpace,
    SpaceToDepth: spaceToDepth,
    Trilu: trilu,
    EyeLike: eyeLike,
    Range: range,
    ConstantOfShape: constantOfShape,
  },
}
