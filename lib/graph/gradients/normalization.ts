// normalization.ts: gradients of normalizations.
import { floatOf, int, intOf, ints, string } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

/** Layer, RMS, group and instance normalization: x, scale, bias. */
const normalization: GradientRule = ctx => {
  const attributes = { ...ctx.node.attributes, of: string(ctx.node.op) }
  const inputs = [ctx.dy(), ctx.input(0), ctx.input(1)]
  const wanted = [0, 1, 2].map(i => ctx.wants(i))
  const gradients = ctx.addMany('NormalizationGrad', inputs, wanted, attributes, sparkDomain)
  const [dx = '', dscale = '', dbias = ''] = gradients
  ctx.give(0, dx)
  ctx.give(1, dscale)
  // The bias may be one element for all.
  ctx.giveSummed(2, dbias)
}

/**
 * y = x · s^−β with s = k + α · mean of x² over neighbouring channels: dx = dy · s^−β − 2αβ · x · the mean, over the
 * channels that see this one, of dy · x · s^(−β−1).
 */
const lrn: GradientRule = ctx => {
  const { node } = ctx
  const [dy, x, size] = [ctx.dy(), ctx.input(0), intOf(node, 'size')]
  const [alpha, beta] = [floatOf(node, 'alpha'), floatOf(node, 'beta')]
  const before = Math.floor((size - 1) / 2)
  const mean = (value: string, pad: number): string => {
    const rows = ctx.add('Reshape', [value, ctx.constant([0, 0, -1])])
    const planes = ctx.add('Unsqueeze', [rows, ctx.constant([1])])
    const pooled = ctx.add('AveragePool', [planes], {
      kernel_shape: ints([size, 1]),
      pads: ints([pad, 0, size - 1 - pad, 0]),
      count_include_pad: int(1),
    })
    return ctx.add('Reshape', [pooled, ctx.add('Shape', [x])], { allowzero: int(1) })
  }
  const scaled = ctx.add('Mul', [mean(ctx.add('Mul', [x, x]), before), ctx.constant(alpha)])
  const s = ctx.add('Add', [scaled, ctx.constant(floatOf(node, 'bias'))])
  const direct = ctx.add('Mul', [dy, ctx.add('Pow', [s, ctx.constant(-beta)])])
  const seen = mean(ctx.add('Div', [ctx.add('Mul', [direct, x]), s]), size - 1 - before)
  const rest = ctx.add('Mul', [ctx.add('Mul', [x, seen]), ctx.constant(2 * alpha * beta)])
  ctx.give(0, ctx.add('Sub', [direct, rest]))
}

/** With frozen statistics. */
const batchNormalization: GradientRule = ctx => {
  if (ctx.wants(3) || ctx.wants(4)) throw ctx.unsupported('mean and variance are frozen')
  if (intOf(ctx.node, 'training_mode')) throw ctx.unsupported('training_mode is not supported yet')
  const inputs = [ctx.dy(), ctx.input(0), ctx.input(1), ctx.input(3), ctx.input(4)]
  addGradients(ctx, 'BatchNormalizationGrad', inputs, [0, 1, 2])
}

/** Gradients of normalizations. */
export const normalizations: GradientTable = {
  '': {
    LayerNormalization: normalization,
    RMSNormalization: normalization,
    GroupNormalization: normalization,
    InstanceNormalization: normalization,
    BatchNormalization: batchNormalization,
    LRN: lrn,
  },
}
