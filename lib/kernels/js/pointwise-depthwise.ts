// pointwise-depthwise.ts: a pointwise convolution and the depthwise one behind it, one after the other.
import { expectOneOf } from '../../core/checks.js'
import type { Paced } from '../../core/paced.js'
import { numel } from '../../core/shape.js'
import { kernelFormats } from '../../weights/formats.js'
import { isCompactDepthwise } from '../compact.js'
import type { KernelArgs } from '../kernels.js'
import { activations } from './activations.js'
import { conv, convSizes, expectCompactFits } from './conv.js'
import { expectFits, expectWeight } from './operands.js'
import { type KernelRows, optional } from './row.js'

function* pointwiseDepthwise(args: KernelArgs['pointwiseDepthwise']): Paced<void> {
  const { pointwise, pointwiseBias, pointwiseActivation, x, xCompact, ...depthwise } = args
  const { batch, image } = args
  const [ones, zeros] = [image.map(() => 1), image.map(() => 0)]
  const between = new Float32Array(batch * pointwise.rows * numel(image))
  const window = { image, kernel: ones, out: image, strides: ones, dilations: ones, padsBegin: zeros }
  const first = { weight: pointwise, bias: pointwiseBias, activation: pointwiseActivation }
  yield* conv({ batch, groups: 1, ...window, ...first, x, xCompact, y: between })
  yield* conv({ ...depthwise, x: between })
}

/** Its contract. */
export const pointwiseDepthwiseRows: KernelRows<'pointwiseDepthwise'> = {
  pointwiseDepthwise: {
    kernel: pointwiseDepthwise,
    check(args) {
      const names = Object.keys(activations)
      expectOneOf('pointwiseActivation', args.pointwiseActivation ?? 'none', names)
      expectOneOf('activation', args.activation ?? 'none', names)
      const { groups, pointwise } = args
      expectWeight(pointwise, kernelFormats, 'pointwise')
      const { channels, filters } = convSizes(args, args.weight)
      expectCompactFits(args, isCompactDepthwise(args))
      expectFits(
        [groups, filters, pointwise.rows].every(count => count === channels),
        `pointwise has ${pointwise.rows} rows; the convolution behind it ${groups} groups, ${channels} channels and ${filters} filters`,
      )
    },
    operands(args) {
      const { filters, y } = convSizes(args, args.weight)
      const x = args.batch * args.pointwise.cols * numel(args.image)
      return { pointwiseBias: optional(filters), x, bias: optional(filters), y }
    },
  },
}
