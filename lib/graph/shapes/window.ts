// window.ts: sizes of the windows of convolutions and pooling.
import { stringOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
import { type Call, showShape } from './call.js'
import { type Shape, unknownShape } from './dimensions.js'
import type { Choices } from './row.js'

/** How a window moves along one spatial axis. */
export interface Window {
  readonly size: Dimension
  readonly stride: number
  readonly dilation: number
  readonly pads: readonly [number, number]
}

/** The windows of a node, one for each spatial axis; `kernel` holds the sizes where no attribute does. */
export function windows(call: Call, spatial: number, kernel: Shape | undefined): Window[] {
  if (spatial < 1) throw call.fail(`x has ${spatial + 2} dimensions; it needs [N, C, …]`)
  const list = (name: string, fallback: number): number[] => {
    const values = call.ints(name)
    if (values && values.length !== spatial)
      throw call.fail(`${name} has ${values.length} entries for ${spatial} axes`)
    return values ?? Array<number>(spatial).fill(fallback)
  }
  const sizes = call.ints('kernel_shape') ?? kernel ?? unknownShape(spatial)
  if (sizes.length !== spatial) throw call.fail(`a kernel of ${showShape(sizes)} for ${spatial} spatial axes`)
  const [strides, dilations] = [list('strides', 1), list('dilations', 1)]
  const pads = call.ints('pads') ?? Array<number>(2 * spatial).fill(0)
  if (pads.length !== 2 * spatial) throw call.fail(`pads has ${pads.length} entries for ${spatial} axes`)
  if ([...strides, ...dilations].some(value => value < 1))
    throw call.fail('strides and dilations must be at least 1')
  return sizes.map((size, i) => ({
    size,
    stride: strides[i]!,
    dilation: dilations[i]!,
    pads: [pads[i]!, pads[i + spatial]!],
  }))
}

/** Number of windows along an axis of size `dim`. */
export function outputSize(call: Call, dim: Dimension, { size, stride, dilation, pads }: Window): Dimension {
  if (typeof dim !== 'number') return stride === 1 && size === 1 && pads[0] + pads[1] === 0 ? dim : null
  const mode = stringOf(call.node, 'auto_pad', 'NOTSET')
  if (mode.startsWith('SAME')) return Math.ceil(dim / stride)
  if (typeof size !== 'number') return null
  const [before, after] = mode === 'VALID' ? [0, 0] : pads
  const rest = dim + before + after - ((size - 1) * dilation + 1)
  if (rest < 0)
    throw call.fail(
      `a window of ${size} (dilation ${dilation}) does not fit into ${dim} + ${before} + ${after}`,
    )
  if (call.int('ceil_mode', 0) === 0) return Math.floor(rest / stride) + 1
  const count = Math.ceil(rest / stride) + 1
  // The last window must not begin in the padding after the end.
  return (count - 1) * stride >= dim + before ? count - 1 : count
}

/** Values of auto_pad. */
export const autoPads: Choices = { auto_pad: ['NOTSET', '', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] }
