// shape.ts: operators that move elements or only see them in another shape.
import { contiguousStrides } from '../../core/shape.js'
import type { Lowering } from '../lowering.js'
import type { Operand } from '../program.js'
import { axisOf, broadcastStrides, collapse } from '../views.js'
import type { LowerTable } from './table.js'

const view = (at: Lowering): void => at.view(0)

/** Adds dst[i · dstStrides] = src[i · srcStrides] for the indices of `shape`. */
export function addCopy(
  at: Lowering,
  shape: readonly number[],
  [src, srcOffset, srcStrides]: readonly [Operand, number, readonly number[]],
  [dst, dstOffset, dstStrides]: readonly [Operand, number, readonly number[]],
): void {
  const loop = collapse(shape, [srcStrides, dstStrides])
  const [from, to] = loop.strides as [number[], number[]]
  at.step('copyStrided', {
    dtype: at.kernelType(src.buffer.dtype),
    shape: loop.shape,
    srcOffset,
    dstOffset,
    srcStrides: from,
    dstStrides: to,
    src,
    dst,
  })
}

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

function concat(at: Lowering): void {
  const { shape } = at.output()
  const axis = axisOf(at.integer('axis', 0), shape.length)
  const strides = contiguousStrides(shape)
  const dst = at.write().buffer
  let start = 0
  for (let i = 0; i < at.node.inputs.length; i++) {
    const part = at.shape(i)
    const to = [dst.write(), start * strides[axis]!, strides] as const
    addCopy(at, part, [at.read(i), 0, contiguousStrides(part)], to)
    start += part[axis]!
  }
}

/** Lowerings of operators on shapes. */
export const shape: LowerTable = {
  '': {
    Identity: view,
    Reshape: view,
    Flatten: view,
    Squeeze: view,
    Unsqueeze: view,
    Transpose: transpose,
    Expand: expand,
    Concat: concat,
    Constant: at => at.constant(at.tensor('value')),
  },
}
