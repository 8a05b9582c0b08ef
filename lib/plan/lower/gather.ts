// gather.ts: gathers and scatters of elements by index tensors.

import { contiguousStrides, numel } from '../../core/shape.js'
import { fixSize, multiply, type Size, sameSize } from '../../core/size.js'
import { int } from '../../graph/attributes.js'
import { sparkDomain } from '../../graph/graph.js'
import type { ScatterFn } from '../../kernels/strided-args.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import type { Value } from '../value.js'
import { axisOf, collapse } from '../views.js'
import { addCopy, zeros } from './copy.js'
import { storedWeight } from './matmul.js'
import { positions } from './positions.js'
import type { LowerTable } from './table.js'

/** The indexed loop; see Indexing in strided-args.ts. */
interface IndexLoop {
  readonly shape: readonly Size[]
  readonly strides: readonly Size[]
  readonly indexStrides: readonly Size[]
  readonly steps: readonly Size[]
  readonly limits: readonly Size[]
  readonly indices: Value
}

function indexLoop(ctx: Lowering, { shape, strides, indexStrides, steps, limits, indices }: IndexLoop) {
  const loop = collapse(shape, [strides, indexStrides])
  const [along, through] = loop.strides as [Size[], Size[]]
  const read = ctx.cast(indices, 'i64').buffer.read()
  return { shape: loop.shape, strides: along, indexStrides: through, steps, limits, indices: read }
}

function addGather(ctx: Lowering, loop: IndexLoop, x: Operand, y: Operand): void {
  ctx.step('gather', { dtype: ctx.kernelType(x.buffer.dtype), ...indexLoop(ctx, loop), x, y })
}

/** y = data, then updates at their places. */
function addScatter(ctx: Lowering, fn: ScatterFn, loop: IndexLoop, data: Value, updates: Operand): void {
  const { shape } = data
  const strides = contiguousStrides(shape)
  const y = ctx.write()
  addCopy(ctx, shape, [data.buffer.read(), 0, strides], [y, 0, strides])
  scatterInto(ctx, fn, loop, y.buffer.update(), updates)
}

/** Updates at their places of y. */
function scatterInto(ctx: Lowering, fn: ScatterFn, loop: IndexLoop, y: Operand, updates: Operand): void {
  if (sameSize(numel(loop.shape), 0)) return
  const dtype = ctx.kernelType(y.buffer.dtype)
  ctx.step('scatter', { fn, dtype, ...indexLoop(ctx, loop), updates, y })
}

/** Rows of a table that is kept in the format of a weight: only those asked for are decoded. */
function gatherRows(ctx: Lowering): boolean {
  const weight = ctx.integer('axis') === 0 ? storedWeight(ctx, 0, false) : undefined
  if (weight?.rows !== ctx.shape(0)[0]) return false
  const indices = ctx.input(1)
  ctx.step('gatherRows', {
    weight,
    count: numel(indices.shape),
    indices: ctx.cast(indices, 'i64').buffer.read(),
    y: ctx.write(),
  })
  return true
}

function gather(ctx: Lowering): void {
  if (gatherRows(ctx)) return
  const [from, indices] = [ctx.shape(0), ctx.input(1)]
  const strides = contiguousStrides(from)
  const axis = axisOf(ctx.integer('axis'), from.length)
  const none = (list: readonly Size[]): number[] => list.map(() => 0)
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
  addGather(ctx, loop, ctx.read(0), ctx.write())
}

/** The loop of operators whose indices replace one coordinate. */
function elementLoop(
  data: Value,
  indices: Value,
  axis: number,
  strides: readonly Size[] = contiguousStrides(data.shape),
): IndexLoop {
  return {
    shape: indices.shape,
    strides: strides.map((stride, i) => (i === axis ? 0 : stride)),
    indexStrides: contiguousStrides(indices.shape),
    steps: [strides[axis]!],
    limits: [data.shape[axis]!],
    indices,
  }
}

function gatherElements(ctx: Lowering): void {
  const axis = axisOf(ctx.integer('axis'), ctx.shape(0).length)
  addGather(ctx, elementLoop(ctx.input(0), ctx.input(1), axis), ctx.read(0), ctx.write())
}

/** The loop of operators whose indices hold several coordinates, behind `batch` axes in common. */
function pointLoop(data: Value, indices: Value, batch: number): IndexLoop {
  const [strides, through] = [contiguousStrides(data.shape), contiguousStrides(indices.shape)]
  const depth = fixSize(indices.shape.at(-1)!)
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

function gatherNd(ctx: Lowering): void {
  addGather(ctx, pointLoop(ctx.input(0), ctx.input(1), ctx.integer('batch_dims')), ctx.read(0), ctx.write())
}

const scatterFns: Readonly<Record<string, ScatterFn>> = {
  none: 'assign',
  add: 'add',
  mul: 'mul',
  max: 'max',
  min: 'min',
}

function scatterElements(ctx: Lowering): void {
  const axis = axisOf(ctx.integer('axis'), ctx.shape(0).length)
  const loop = elementLoop(ctx.input(0), ctx.input(1), axis)
  addScatter(ctx, scatterFns[ctx.text('reduction')]!, loop, ctx.input(0), ctx.read(2))
}

function scatterNd(ctx: Lowering): void {
  const loop = pointLoop(ctx.input(0), ctx.input(1), 0)
  addScatter(ctx, scatterFns[ctx.text('reduction')]!, loop, ctx.input(0), ctx.read(2))
}

/** past cache, update, write indices: the update replaces what is there from the write index of each sample on. */
function tensorScatter(ctx: Lowering): void {
  const [cache, update] = [ctx.input(0), ctx.input(1)]
  const axis = axisOf(ctx.integer('axis'), cache.shape.length)
  if (update.shape.length !== cache.shape.length)
    throw ctx.unsupported(
      `an update of [${update.shape.join(', ')}] for a cache of [${cache.shape.join(', ')}]`,
    )
  const [batch, length, size] = [cache.shape[0]!, update.shape[axis]!, cache.shape[axis]!]
  const steps = positions(ctx, length)
  const starts = ctx.has(2)
    ? ctx.cast(ctx.input(2), 'i64')
    : ctx.call('Expand', [ctx.one(0, 'i64'), ctx.ints([batch])])
  let indices = ctx.call('Add', [ctx.call('Unsqueeze', [starts, ctx.ints([1])]), steps])
  if (ctx.text('mode') === 'circular') indices = ctx.call('Mod', [indices, ctx.one(size, 'i64')])
  const indexStrides = update.shape.map((_, i) => (i === 0 ? length : i === axis ? 1 : 0))
  const { growing } = cache
  const isState = growing?.isExtended && growing.isNext(cache.shape)
  const loop = elementLoop(cache, indices, axis, isState ? growing.strides : undefined)
  const whole = { ...loop, shape: update.shape, indexStrides }
  if (isState) {
    scatterInto(ctx, 'assign', whole, growing.buffer.update(), update.buffer.read())
    growing.isChanged = true
    ctx.giveState(growing)
  } else {
    scatterInto(ctx, 'assign', whole, ctx.inPlace(0, 0), update.buffer.read())
  }
}

/** indices, depth, [off, on]: on where the position along the new axis is the index. */
function oneHot(ctx: Lowering): void {
  const depth = ctx.wholes(1)[0]!
  const rank = ctx.shape(0).length + 1
  const axis = axisOf(ctx.integer('axis'), rank)
  const [off, on] = ctx.calls('Split', [ctx.input(2)], { axis: int(0), num_outputs: int(2) }, 2)
  const row = Array.from({ length: rank }, (_, i) => (i === axis ? depth : 1))
  const columns = ctx.reshaped(positions(ctx, depth), row)
  const given = ctx.call('Unsqueeze', [ctx.cast(ctx.input(0), 'i64'), ctx.ints([axis])])
  const negative = ctx.call('Less', [given, ctx.one(0, 'i64')])
  const counted = ctx.call('Where', [negative, ctx.call('Add', [given, ctx.one(depth, 'i64')]), given])
  ctx.give(ctx.call('Where', [ctx.call('Equal', [counted, columns]), on, off]))
}

/** dy, x, indices → dx: elements that were read more than once get the sum. */
function gatherGrad(ctx: Lowering): void {
  const shape = ctx.shape(1)
  const axis = axisOf(ctx.integer('axis'), shape.length)
  const [outer, size, inner] = [numel(shape.slice(0, axis)), shape[axis]!, numel(shape.slice(axis + 1))]
  const count = numel(ctx.shape(2))
  const dx = zeros(ctx)
  ctx.step('scatter', {
    fn: 'add',
    dtype: 'f32',
    shape: [outer, count, inner],
    strides: [multiply(size, inner), 0, 1],
    indexStrides: [0, 1, 0],
    steps: [inner],
    limits: [size],
    indices: indicesOf(ctx, 2),
    updates: ctx.read(0),
    y: dx.update(),
  })
}

/** Input `i` as i64. */
function indicesOf(ctx: Lowering, i: number): Operand {
  const { dtype, buffer } = ctx.input(i)
  if (dtype === 'i64') return buffer.read()
  if (dtype !== 'i32') throw ctx.unsupported(`indices of ${dtype} are not supported`)
  const wide = ctx.scratch(buffer.count, 'i64')
  ctx.step('cast', {
    srcDtype: 'i32',
    dstDtype: 'i64',
    count: buffer.count,
    saturate: false,
    src: buffer.read(),
    dst: wide.write(),
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
