// window.ts: sizes of the windows of convolutions and pooling.
import {
  add,
  ceilDivide,
  floorDivide,
  isSize,
  lessThan,
  maximum,
  minimum,
  multiply,
  subtract,
} from '../../core/size.js'
import { stringOf } from '../attributes.js'
import type { SymbolicDimension } from '../graph.js'
import { type ShapeContext, showShape } from './context.js'
import { type Shape, unknownShape } from './dimensions.js'
import type { Choices } from './row.js'

/** How a window moves along one spatial axis. */
export interface Window {
  readonly size: SymbolicDimension
  readonly stride: number
  readonly dilation: number
  readonly pads: readonly [number, number]
}

/** The windows of a node, one for each spatial axis; `kernel` holds the sizes where no attribute does. */
export function windows(ctx: ShapeContext, spatial: number, kernel: Shape | undefined): Window[] {
  if (spatial < 1) throw ctx.fail(`x has ${spatial + 2} dimensions; it needs [N, C, …]`)
  const list = (name: string, fallback: number): number[] => {
    const values = ctx.ints(name)
    if (values && values.length !== spatial)
      throw ctx.fail(`${name} has ${values.length} entries for ${spatial} axes`)
    return values ?? Array<number>(spatial).fill(fallback)
  }
  const sizes = ctx.ints('kernel_shape') ?? kernel ?? unknownShape(spatial)
  if (sizes.length !== spatial) throw ctx.fail(`a kernel of ${showShape(sizes)} for ${spatial} spatial axes`)
  const [strides, dilations] = [list('strides', 1), list('dilations', 1)]
  const pads = ctx.ints('pads') ?? Array<number>(2 * spatial).fill(0)
  if (pads.length !== 2 * spatial) throw ctx.fail(`pads has ${pads.length} entries for ${spatial} axes`)
  if ([...strides, ...dilations].some(value => value < 1))
    throw ctx.fail('strides and dilations must be at least 1')
  return sizes.map((size, i) => ({
    size,
    stride: strides[i]!,
    dilation: dilations[i]!,
    pads: [pads[i]!, pads[i + spatial]!],
  }))
}

/** Number of windows along an axis of size `dim`. */
export function outputSize(
  ctx: ShapeContext,
  dim: SymbolicDimension,
  { size, stride, dilation, pads }: Window,
): SymbolicDimension {
  if (!isSize(dim)) return stride === 1 && size === 1 && pads[0] + pads[1] === 0 ? dim : null
  const mode = stringOf(ctx.node, 'auto_pad')
  if (mode.startsWith('SAME')) return ceilDivide(dim, stride)
  if (!isSize(size)) return null
  const [before, after] = mode === 'VALID' ? [0, 0] : pads
  const span = add(multiply(subtract(size, 1), dilation), 1)
  const rest = subtract(add(dim, before + after), span)
  if (lessThan(rest, 0))
    throw ctx.fail(
      `a window of ${size} (dilation ${dilation}) does not fit into ${dim} + ${before} + ${after}; the inputs are too small`,
    )
  if (ctx.int('ceil_mode') === 0) return add(floorDivide(rest, stride), 1)
  const last = ceilDivide(rest, stride)
  // The last window must not begin in the padding after the end.
  return minimum(add(last, 1), maximum(last, ceilDivide(add(dim, before), stride)))
}

/** Values of auto_pad. */
export const autoPads: Choices = { auto_pad: ['NOTSET', '', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] }
