// conv.ts: the geometry of a convolution.
import { SparkError } from '../../../core/errors.js'
import { describeNode, intsOf, stringOf } from '../../../graph/attributes.js'
import type { Node } from '../../../graph/graph.js'

/** Sizes along the axes of a convolution. */
export interface ConvGeometry {
  readonly image: readonly number[]
  readonly kernel: readonly number[]
  readonly out: readonly number[]
  readonly strides: readonly number[]
  readonly dilations: readonly number[]
  readonly padsBegin: readonly number[]
}

/** Geometry of a node with the attributes of `Conv`, for x [N, C, image] and W [O, C/G, kernel]. */
export function convGeometry(node: Node, x: readonly number[], w: readonly number[]): ConvGeometry {
  const [image, kernel] = [x.slice(2), w.slice(2)]
  if (image.length < 1 || image.length !== kernel.length) {
    const shapes = `x [${x.join(', ')}] and W [${w.join(', ')}]`
    throw new SparkError('ERR_SHAPE', `${describeNode(node)}: ${shapes} do not fit`)
  }
  const ones = image.map(() => 1)
  const strides = intsOf(node, 'strides') ?? ones
  const dilations = intsOf(node, 'dilations') ?? ones
  const pads = intsOf(node, 'pads') ?? [...ones, ...ones].map(() => 0)
  const autoPad = stringOf(node, 'auto_pad', 'NOTSET')
  const spans = kernel.map((size, axis) => (size - 1) * dilations[axis]! + 1)
  const padsBegin: number[] = []
  const out = image.map((size, axis) => {
    const [stride, span] = [strides[axis]!, spans[axis]!]
    if (autoPad.startsWith('SAME')) {
      const result = Math.ceil(size / stride)
      const total = Math.max((result - 1) * stride + span - size, 0)
      padsBegin.push(autoPad === 'SAME_UPPER' ? Math.floor(total / 2) : Math.ceil(total / 2))
      return result
    }
    const [begin, end] = autoPad === 'VALID' ? [0, 0] : [pads[axis]!, pads[axis + image.length]!]
    padsBegin.push(begin)
    return Math.floor((size + begin + end - span) / stride) + 1
  })
  return { image, kernel, out, strides, dilations, padsBegin }
}
