// window.ts: windows of convolutions and pooling.
import type { Lowering } from '../lowering.js'

/** Numbers along the axes of a window. */
export interface Window {
  readonly image: readonly number[]
  readonly kernel: readonly number[]
  readonly out: readonly number[]
  readonly strides: readonly number[]
  readonly dilations: readonly number[]
  readonly padsBegin: readonly number[]
  readonly padsEnd: readonly number[]
}

/** The window of a node from x [N, C, image] to y [N, …, out]. */
export function windowOf(
  ctx: Lowering,
  x: readonly number[],
  y: readonly number[],
  kernel: readonly number[],
): Window {
  const [image, out] = [x.slice(2), y.slice(2)]
  const strides = ctx.integersOf('strides') ?? image.map(() => 1)
  const dilations = ctx.integersOf('dilations') ?? image.map(() => 1)
  const pads = ctx.integersOf('pads') ?? [...image, ...image].map(() => 0)
  const mode = ctx.text('auto_pad')
  const ends = image.map((size, axis): [number, number] => {
    if (!mode.startsWith('SAME')) {
      return mode === 'VALID' ? [0, 0] : [pads[axis]!, pads[axis + image.length]!]
    }
    const span = (kernel[axis]! - 1) * dilations[axis]! + 1
    const total = Math.max((out[axis]! - 1) * strides[axis]! + span - size, 0)
    const half = Math.floor(total / 2)
    return mode === 'SAME_UPPER' ? [half, total - half] : [total - half, half]
  })
  const [padsBegin, padsEnd] = [ends.map(([begin]) => begin), ends.map(([, end]) => end)]
  return { image, kernel, out, strides, dilations, padsBegin, padsEnd }
}
