// convolution.ts: shapes of convolutions and pooling.
import { numel } from '../../core/shape.js'
import { stringOf } from '../attributes.js'
import type { Dimension } from '../graph.js'
import { type Call, type Rule, showShape, tensorOrUnknown } from './call.js'
import { compatible, type Shape, unknownShape } from './dimensions.js'

/** How a window moves along one spatial axis. */
interface Window {
  readonly size: Dimension
  readonly stride: number
  readonly dilation: number
  readonly pads: readonly [number, number]
}

/** The windows of a node, one for each spatial axis; `kernel` holds the sizes where no attribute does. */
function windows(call: Call, spatial: number, kernel: Shape | undefined): Window[] {
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

/** Places of a window along an axis of size `dim`. */
function places(call: Call, dim: Dimension, { size, stride, dilation, pads }: Window): Dimension {
  if (typeof dim !== 'number') return stride === 1 && size === 1 && pads[0] + pads[1] === 0 ? dim : null
  const mode = stringOf(call.node, 'auto_pad', 'NOTSET')
  if (mode.startsWith('SAME')) return Math.ceil(dim / stride)
  if (typeof size !== 'number') return null
  const [before, after] = mode === 'VALID' ? [0, 0] : pads
  const room = dim + before + after - ((size - 1) * dilation + 1)
  if (room < 0)
    throw call.fail(
      `a window of ${size} (dilation ${dilation}) does not fit into ${dim} + ${before} + ${after}`,
    )
  if (call.int('ceil_mode', 0) === 0) return Math.floor(room / stride) + 1
  const count = Math.ceil(room / stride) + 1
  // The last window must not begin in the padding after the end.
  return (count - 1) * stride >= dim + before ? count - 1 : count
}

/** Shape of a convolution with the weight at input `weight`. */
export function convolution(call: Call, weight: number): Shape | undefined {
  const [x, w] = [call.shape(0), call.shape(weight)]
  if (!x || !w) return x && unknownShape(x.length)
  const [n, c] = x as readonly [Dimension, Dimension]
  const groups = call.int('group', 1)
  if (w.length !== x.length || x.length < 3)
    throw call.fail(`x is ${showShape(x)} and the weight ${showShape(w)}`)
  if (typeof w[1] === 'number' && !compatible(c, w[1] * groups)) {
    throw call.fail(
      `x is ${showShape(x)}, the weight ${showShape(w)} and group ${groups}: ${c} channels do not fit`,
    )
  }
  const moves = windows(call, x.length - 2, w.slice(2))
  return [n, w[0]!, ...moves.map((window, i) => places(call, x[i + 2]!, window))]
}

function transposed(call: Call): Shape | undefined {
  const [x, w] = [call.shape(0), call.shape(1)]
  if (!x || !w) return x && unknownShape(x.length)
  const spatial = x.length - 2
  const moves = windows(call, spatial, w.slice(2))
  const extra = call.ints('output_padding') ?? Array<number>(spatial).fill(0)
  const fixed = call.ints('output_shape')?.slice(-spatial)
  const same = stringOf(call.node, 'auto_pad', 'NOTSET').startsWith('SAME')
  const channels = typeof w[1] === 'number' ? w[1] * call.int('group', 1) : null
  const sizes = moves.map(({ size, stride, dilation, pads }, i) => {
    const dim = x[i + 2]!
    if (fixed) return fixed[i]!
    if (typeof dim !== 'number') return null
    if (same) return dim * stride
    return typeof size === 'number'
      ? stride * (dim - 1) + extra[i]! + (size - 1) * dilation + 1 - pads[0] - pads[1]
      : null
  })
  return [x[0]!, channels, ...sizes]
}

function pooled(call: Call): Shape | undefined {
  const x = call.shape(0)
  if (!x) return undefined
  return [
    ...x.slice(0, 2),
    ...windows(call, x.length - 2, undefined).map((window, i) => places(call, x[i + 2]!, window)),
  ]
}

const globalPool: Rule = call => {
  const x = call.shape(0)
  return [
    tensorOrUnknown(
      call.dtype(0),
      x?.map((dim, i) => (i < 2 ? dim : 1)),
    ),
  ]
}

const pool: Rule = call => {
  const shape = pooled(call)
  return [tensorOrUnknown(call.dtype(0), shape), tensorOrUnknown('i64', shape)]
}

/** Rules by operator. */
export const convolutionRules: Readonly<Record<string, Rule>> = {
  Conv: call => [tensorOrUnknown(call.commonDtype([0, 1, 2]), convolution(call, 1))],
  ConvInteger: call => [tensorOrUnknown('i32', convolution(call, 1))],
  QLinearConv: call => [tensorOrUnknown(call.dtype(7), convolution(call, 3))],
  DeformConv: call => [tensorOrUnknown(call.dtype(0), convolution(call, 1))],
  ConvTranspose: call => [tensorOrUnknown(call.commonDtype([0, 1, 2]), transposed(call))],
  AveragePool: pool,
  MaxPool: pool,
  LpPool: pool,
  GlobalAveragePool: globalPool,
  GlobalMaxPool: globalPool,
  GlobalLpPool: globalPool,
  MaxUnpool: call => {
    const x = call.shape(0)
    if (call.has(2))
      return [tensorOrUnknown(call.dtype(0), call.known(2)?.elements ?? (x && unknownShape(x.length)))]
    const sizes = x && windows(call, x.length - 2, undefined)
    return [
      tensorOrUnknown(
        call.dtype(0),
        x?.map((dim, i) => {
          if (i < 2) return dim
          const { size, stride, pads } = sizes![i - 2]!
          return typeof dim === 'number' && typeof size === 'number'
            ? (dim - 1) * stride + size - pads[0] - pads[1]
            : null
        }),
      ),
    ]
  },
  CausalConvWithState: call => {
    const [x, w] = [call.shape(0), call.shape(1)]
    const size = w?.[2]
    const state = typeof size === 'number' ? size - 1 : null
    return [call.type(0), tensorOrUnknown(call.dtype(0), x && [x[0]!, x[1]!, state])]
  },
  Col2Im: call => {
    const [x, image, block] = [call.shape(0), call.known(1)?.elements, call.numbers(2)]
    if (!x || !image || !block) return [tensorOrUnknown(call.dtype(0), undefined)]
    const width = numel(block)
    return [tensorOrUnknown(call.dtype(0), [x[0]!, typeof x[1] === 'number' ? x[1] / width : null, ...image])]
  },
}
