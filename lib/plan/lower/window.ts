// window.ts: windows of convolutions and pooling.
import { add, floorDivide, maximum, multiply, type Size, subtract } from '../../core/size.js'
import type { WindowSizes } from '../../kernels/compact.js'
import type { Lowering } from '../lowering.js'

/** The window of a convolution or a pool, with the padding behind its image. */
export interface Window extends WindowSizes {
  readonly padsEnd: readonly Size[]
}

/** The window of a node from x [N, C, image] to y [N, …, out]. */
export function windowOf(
  ctx: Lowering,
  x: readonly Size[],
  y: readonly Size[],
  kernel: readonly Size[],
): Window {
  const [image, out] = [x.slice(2), y.slice(2)]
  const strides = ctx.integersOf('strides') ?? image.map(() => 1)
  const dilations = ctx.integersOf('dilations') ?? image.map(() => 1)
  const pads = ctx.integersOf('pads') ?? [...image, ...image].map(() => 0)
  const mode = ctx.text('auto_pad')
  const ends = image.map((size, axis): [Size, Size] => {
    if (!mode.startsWith('SAME')) {
      return mode === 'VALID' ? [0, 0] : [pads[axis]!, pads[axis + image.length]!]
    }
    const span = add(multiply(subtract(kernel[axis]!, 1), dilations[axis]!), 1)
    const covered = add(multiply(subtract(out[axis]!, 1), strides[axis]!), span)
    const total = maximum(subtract(covered, size), 0)
    const half = floorDivide(total, 2)
    const rest = subtract(total, half)
    return mode === 'SAME_UPPER' ? [half, rest] : [rest, half]
  })
  const [padsBegin, padsEnd] = [ends.map(([begin]) => begin), ends.map(([, end]) => end)]
  return { image, kernel, out, strides, dilations, padsBegin, padsEnd }
}
