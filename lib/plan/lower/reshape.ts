// reshape.ts: views under another shape, and permutations of all elements.
import { contiguousStrides } from '../../core/shape.js'
import { ints } from '../../graph/attributes.js'
import type { Lowering } from '../lowering.js'
import { broadcastStrides } from '../views.js'
import { addCopy } from './copy.js'
import type { LowerTable } from './table.js'

const view = (at: Lowering): void => at.view(0)

function transpose(at: Lowering): void {
  const strides = contiguousStrides(at.shape(0))
  const order = at.integersOf('perm') ?? strides.map((_, axis) => strides.length - 1 - axis)
  const { shape } = at.output()
  addCopy(
    at,
    shape,
    [at.read(0), 0, order.map(axis => strides[axis]!)],
    [at.write(), 0, contiguousStrides(shape)],
  )
}

function expand(at: Lowering): void {
  const { shape } = at.output()
  addCopy(
    at,
    shape,
    [at.read(0), 0, broadcastStrides(at.shape(0), shape)],
    [at.write(), 0, contiguousStrides(shape)],
  )
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
