// gather.ts: gathers and scatters of elements by index tensors.
import { contiguousStrides, numel } from '../../core/shape.js'
import { int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { ScatterFn } from '../../kernels/tensor-kernel-args.js'
import type { Lowering, Value } from '../lowering.js'
import type { Operand } from '../program.js'
import { axisOf, collapse } from '../views.js'
import { addCopy, zeros } from './copy.js'
import type { LowerTable } from './table.js'

/** The loop over places; see Places in tensor-kernel-args.ts. */
interface IndexLoop {
  readonly shape: readonly number[]
  readonly strides: readonly number[]
  readonly indexStrides: readonly number[]
  readonly steps: readonly number[]
  readonly limits: readonly number[]
  readonly indices: Value
}

function indexLoop(at: Lowering, { shape, strides, indexStrides, steps, limits, indices }: IndexLoop) {
  const loop = collapse(shape, [strides, indexStrides])
  const [along, through] = loop.strides as [number[], number[]]
  const read = at.cast(indices, 'i64').buffer.read()
  return { shape: loop.shape, strides: along, indexStrides: through, steps, limits, indices: read }
}

function addGather(at: Lowering, loop: IndexLoop, x: Operand, y: Operand): void {
  at.step('gather', { dtype: at.kernelType(x.buffer.dtype), ...indexLoop(at, loop), x, y })
}

/** y = data, then updates at their places. */
function addScatter(at: Lowering, fn: ScatterFn, loop: IndexLoop, data: Value, updates: Operand): void {
  const { shape } = data
  const strides = contiguousStrides(shape)
  const y = at.write()
  addCopy(at, shape, [data.buffer.read(), 0, strides], [y, 0, strides])
  if (numel(loop.shape) === 0) return
  const dtype = at.kernelType(data.dtype)
  at.step('scatter', { fn, dtype, ...indexLoop(at, loop), updates, y: y.buffer.update() })
}

function gather(at: Lowering): void {
  const [from, indices] = [at.shape(0), at.input(1)]
  const strides = contiguousStrides(from)
  const axis = axisOf(at.integer('axis', 0), from.length)
  const none = (list: readonly number[]): number[] => list.map(() => 0)
  const loop: IndexLoop = {
    shape: [...from.slice(0, axis), ...indices.shape, ...from.slice(axis + 1)],
    strides: [...strides.slice(0, axis), ...none(indices.shape), ...strides.slice(axis + 1)],
    indexStrides: [
      ...none(from.slice(0, axis)),
      ...contiguousStrides(indices.shape),
      ...none(from.slice(axis + 1)),
    ],
    steps: [strides[axis]!],
    limits: [from[axis]!],
    indices,
  }
  addGather(at, loop, at.read(0), at.write())
}

/** The loop of operators whose indices replace one coordinate. */
function elementLoop(data: Value, indices: Value, axis: number): IndexLoop {
  const strides = contiguousStrides(data.shape)
  return {
    shape: indices.shape,
    strides: strides.map((stride, i) => (i === axis ? 0 : stride)),
    indexStrides: contiguousStrides(indices.shape),
    steps: [strides[axis]!],
    limits: [data.shape[axis]!],
    indices,
  }
}

function gatherElements(at: Lowering): void {
  const axis = axisOf(at.integer('axis', 0), at.shape(0).length)
  addGather(at, elementLoop(at.input(0), at.input(1), axis), at.read(0), at.write())
}

/** The loop of operators whose indices hold several coordinates, behind `batch` axes in common. */
function pointLoop(data: Value, indices: Value, batch: number): IndexLoop {
  const [strides, through] = [contiguousStrides(data.shape), contiguousStrides(indices.shape)]
  const depth = indices.shape.at(-1)!
  const rest = batch + depth
  const lead = indices.shape.slice(0, -1)
  return {
    shape: [...lead, ...data.shape.slice(rest)],
    strides: [...lead.map((_, i) => (i < batch ? strides[i]! : 0)), ...strides.slice(rest)],
    indexStrides: [...through.slice(0, -1), ...data.shape.slice(rest).map(() => 0)],
    steps: strides.slice(batch, rest),
    limits: data.shape.slice(batch, rest),
    indices,
  }
}

function gatherNd(at: Lowering): void {
  addGather(at, pointLoop(at.input(0), at.input(1), at.integer('batch_dims', 0)), at.read(0), at.write())
}

const scatterFns: Readonly<Record<string, ScatterFn>> = {
  none: 'assign',
  add: 'add',
  mul: 'mul',
  max: 'max',
  min: 'min',
}

function scatterElements(at: Lowering): void {
  const axis = axisOf(at.integer('axis', 0), at.shape(0).length)
  const loop = elementLoop(at.input(0), at.input(1), axis)
  addScatter(at, scatterFns[at.text('reduction', 'none')]!, loop, at.input(0), at.read(2))
}

function scatterNd(at: Lowering): void {
  const loop = pointLoop(at.input(0), at.input(1), 0)
  addScatter(at, scatterFns[at.text('reduction', 'none')]!, loop, at.input(0), at.read(2))
}

/** past cache, update, write indices: the update replaces what is there from the write index of each sample on. */
function tensorScatter(at: Lowering): void {
  const [cache, update] = [at.input(0), at.input(1)]
  const axis = axisOf(at.integer('axis', -2), cache.shape.length)
  const [batch, length, size] = [cache.shape[0]!, update.shape[axis]!, cache.shape[axis]!]
  const steps = at.ints(Array.from({ length }, (_, i) => i))
  const starts = at.has(2) ? at.cast(at.input(2), 'i64') : at.constantOf('i64', [batch], Array(batch).fill(0))
  let indices = at.call('Add', [at.call('Unsqueeze', [starts, at.ints([1])]), steps])
  if (at.text('mode', 'linear') === 'circular') indices = at.call('Mod', [indices, at.one(size, 'i64')])
  const loop = elementLoop(cache, indices, axis)
  const indexStrides = update.shape.map((_, i) => (i === 0 ? length : i === axis ? 1 : 0))
  addScatter(at, 'assign', { ...loop, shape: update.shape, indexStrides }, cache, update.buffer.read())
}

/** indices, depth, [off, on]: on where the position along the new axis is the index. */
function oneHot(at: Lowering): void {
  const depth = at.integers(1)[0]!
  const rank = at.shape(0).length + 1
  const axis = axisOf(at.integer('axis', -1), rank)
  const [off, on] = at.calls('Split', [at.input(2)], { axis: int(0), num_outputs: int(2) }, 2)
  const row = Array.from({ length: rank }, (_, i) => (i === axis ? depth : 1))
  const ends = [at.one(0, 'i64'), at.one(depth, 'i64'), at.one(1, 'i64')]
  const positions = at.reshaped(at.call('Range', ends), row)
  const given = at.call('Unsqueeze', [at.cast(at.input(0), 'i64'), at.ints([axis])])
  const negative = at.call('Less', [given, at.one(0, 'i64')])
  const counted = at.call('Where', [negative, at.call('Add', [given, at.one(depth, 'i64')]), given])
  at.give(at.call('Where', [at.call('Equal', [counted, positions]), on, off]))
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

/** Lowerings of operators with indices. */
export const gathers: LowerTable = {
  '': {
    Gather: gather,
    GatherElements: gatherElements,
    GatherND: gatherNd,
    ScatterElements: scatterElements,
    ScatterND: scatterNd,
    TensorScatter: tensorScatter,
    OneHot: oneHot,
  },
  [sparkDomain]: { GatherGrad: gatherGrad },
}
