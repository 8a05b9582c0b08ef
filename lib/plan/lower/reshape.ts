// reshape.ts: views under another shape, and permutations of all elements.

import { contiguousStrides } from '../../core/shape.js'
import { partOf, type Size } from '../../core/size.js'
import { ints } from '../../graph/attributes.js'
import type { Lowering } from '../lowering.js'
import { broadcastStrides } from '../views.js'
import { addCopy } from './copy.js'
import type { LowerTable } from './table.js'

const view = (ctx: Lowering): void => ctx.view(0)

function transpose(ctx: Lowering): void {
  const strides = contiguousStrides(ctx.shape(0))
  const order = ctx.integersOf('perm') ?? strides.map((_, axis) => strides.length - 1 - axis)
  const { shape } = ctx.output()
  addCopy(
    ctx,
    shape,
    [ctx.read(0), 0, order.map(axis => strides[axis]!)],
    [ctx.write(), 0, contiguousStrides(shape)],
  )
}

function expand(ctx: Lowering): void {
  const { shape } = ctx.output()
  addCopy(
    ctx,
    shape,
    [ctx.read(0), 0, broadcastStrides(ctx.shape(0), shape)],
    [ctx.write(), 0, contiguousStrides(shape)],
  )
}

/** x through a reshape, a transpose and another reshape, to the shape of the output. */
function rearrange(ctx: Lowering, shape: readonly Size[], order: readonly number[]): void {
  const parts = ctx.reshaped(ctx.input(0), shape)
  const moved = ctx.call('Transpose', [parts], { perm: ints(order) })
  ctx.give(ctx.reshaped(moved, ctx.output().shape))
}

function depthToSpace(ctx: Lowering): void {
  const [n = 0, c = 0, h = 0, w = 0] = ctx.shape(0)
  const block = ctx.integer('blocksize')
  const depth = partOf(c, block * block)
  if (ctx.text('mode') === 'CRD') rearrange(ctx, [n, depth, block, block, h, w], [0, 1, 4, 2, 5, 3])
  else rearrange(ctx, [n, block, block, depth, h, w], [0, 3, 4, 1, 5, 2])
}

function spaceToDepth(ctx: Lowering): void {
  const [n = 0, c = 0, h = 0, w = 0] = ctx.shape(0)
  const block = ctx.integer('blocksize')
  rearrange(ctx, [n, c, partOf(h, block), block, partOf(w, block), block], [0, 3, 5, 1, 2, 4])
}

/** Lowerings of operators that keep all elements. */
export const reshaping: LowerTable = {
  '': {
    Identity: view,
    Reshape: view,
    Flatten: view,
    Squeeze: view,
    Unsqueeze: view,
    Transpose: transpose,
    Expand: expand,
    DepthToSpace: depthToSpace,
    SpaceToDepth: spaceToDepth,
  },
}
