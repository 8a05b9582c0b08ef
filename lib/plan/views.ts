// views.ts: shapes and strides at compile time.

import { SparkError } from '../core/errors.js'
import { contiguousStrides } from '../core/shape.js'
import { multiply, type Size, sameSize } from '../core/size.js'

/** Strides of a contiguous operand of `shape` that is broadcast to `target`; 0 repeats. */
export function broadcastStrides(shape: readonly Size[], target: readonly Size[]): Size[] {
  const strides = contiguousStrides(shape)
  const missing = target.length - shape.length
  return target.map((_, axis) =>
    axis < missing || repeats(shape[axis - missing]!, target[axis]!) ? 0 : strides[axis - missing]!,
  )
}

/** Whether one element stands for all along an axis. */
const repeats = (size: Size, target: Size): boolean => size === 1 || (size !== target && sameSize(size, 1))

/** A loop over several operands with as few axes as can be: axes of size 1 vanish, neighbours that move as one do. */
export function collapse(
  shape: readonly Size[],
  operands: readonly (readonly Size[])[],
): { shape: Size[]; strides: Size[][] } {
  const axes: { size: Size; steps: Size[] }[] = []
  shape.forEach((size, axis) => {
    const steps = operands.map(strides => strides[axis]!)
    const outer = axes.at(-1)
    if (size === 1) return
    if (outer?.steps.every((step, n) => step === multiply(steps[n]!, size))) {
      axes[axes.length - 1] = { size: multiply(outer.size, size), steps }
    } else {
      axes.push({ size, steps })
    }
  })
  return {
    shape: axes.map(({ size }) => size),
    strides: operands.map((_, n) => axes.map(({ steps }) => steps[n]!)),
  }
}

/** An axis counted from the front; negative ones count from the back. */
export function axisOf(axis: number, rank: number): number {
  if (axis < -rank || axis >= rank)
    throw new SparkError('ERR_SHAPE', `axis ${axis} of a tensor of ${rank} dimensions`)
  return axis < 0 ? axis + rank : axis
}
