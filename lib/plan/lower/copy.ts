// copy.ts: strided copies and fills that several families of operators are made of.

import { contiguousStrides } from '../../core/shape.js'
import type { Size } from '../../core/size.js'
import type { Lowering } from '../lowering.js'
import type { Buffer, Operand } from '../program.js'
import { collapse } from '../views.js'

/** Adds dst[i · dstStrides] = src[i · srcStrides] for the indices of `shape`. */
export function addCopy(
  ctx: Lowering,
  shape: readonly Size[],
  [src, srcOffset, srcStrides]: readonly [Operand, Size, readonly Size[]],
  [dst, dstOffset, dstStrides]: readonly [Operand, Size, readonly Size[]],
): void {
  const loop = collapse(shape, [srcStrides, dstStrides])
  const [from, to] = loop.strides as [Size[], Size[]]
  ctx.step('copyStrided', {
    dtype: ctx.kernelType(src.buffer.dtype),
    shape: loop.shape,
    srcOffset,
    dstOffset,
    srcStrides: from,
    dstStrides: to,
    src,
    dst,
  })
}

/** Adds dst = value everywhere. */
export function addFill(ctx: Lowering, shape: readonly Size[], value: Operand, dst: Operand): void {
  const strides = contiguousStrides(shape)
  addCopy(ctx, shape, [value, 0, shape.map(() => 0)], [dst, 0, strides])
}

/** Memory for output `o`, filled with 0. */
export function zeros(ctx: Lowering, o = 0): Buffer {
  const { buffer } = ctx.write(o)
  addCopy(ctx, [buffer.count], [ctx.scalar(0), 0, [0]], [buffer.write(), 0, [1]])
  return buffer
}
