// growing.ts: operators that write behind a growing state, or into it, instead of making a copy of it.
import { contiguousStrides } from '../../core/shape.js'
import { add, multiply, type Size, subtract } from '../../core/size.js'
import type { Lowering } from '../lowering.js'
import { addCopy } from './copy.js'

/** A concatenation whose first part is a state that becomes it; false: it is none, and nothing was done. */
export function appendToState(ctx: Lowering, axis: number): boolean {
  const { growing } = ctx.input(0)
  if (!growing?.canExtendTo(ctx.output().shape, axis)) return false
  let start = ctx.shape(0)[axis]!
  for (let i = 1; i < ctx.node.inputs.length; i++) {
    const part = ctx.shape(i)
    const to = [growing.buffer.write(), multiply(start, growing.strides[axis]!), growing.strides] as const
    addCopy(ctx, part, [ctx.read(i), 0, contiguousStrides(part)], to)
    start = add(start, part[axis]!)
  }
  ctx.giveState(growing)
  return true
}

/** A state with a constant behind it that becomes the state; false: it is none, and nothing was done. */
export function padState(ctx: Lowering, pads: readonly (readonly [Size, Size])[]): boolean {
  const { growing } = ctx.input(0)
  const { shape, dtype } = ctx.output()
  if (!growing) return false
  const { axis, strides } = growing
  const behind = pads.every(([before, after], i) => before === 0 && (after === 0 || i === axis))
  if (!behind || !growing.canExtendTo(shape, axis)) return false
  const from = ctx.shape(0)
  const added = shape.map((size, i) => (i === axis ? subtract(size, from[i]!) : size))
  const fill = ctx.has(2) ? ctx.read(2) : ctx.scalar(0, ctx.kernelType(dtype))
  const start = multiply(from[axis]!, strides[axis]!)
  addCopy(ctx, added, [fill, 0, shape.map(() => 0)], [growing.buffer.write(), start, strides])
  ctx.giveState(growing)
  return true
}
