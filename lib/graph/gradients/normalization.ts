// normalization.ts: gradients of normalizations.
import { floatOf, int, intOf, ints, string } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientRule, GradientTable } from './context.js'
import { addGradients } from './operators.js'

/** Layer, RMS, group and instance normalization: x, scale, bias. */
const normalization: GradientRule = at => {
  const attributes = { ...at.node.attributes, of: string(at.node.op) }
  const inputs = [at.dy(), at.input(0), at.input(1)]
  const wanted = [0, 1, 2].map(i => at.wants(i))
  const gradients = at.addMany('NormalizationGrad', inputs, wanted, attributes, sparkDomain)
  const [dx = '', dscale = '', dbias = ''] = gradients
  at.give(0, dx)
  at.give(1, dscale)
  // The bias may be one element for all.
  at.giveSummed(2, dbias)
}

/**
 * y = x · s^−β with s = k + α · mean of x² over neighbouring channels: dx = dy · s^−β − 2αβ · x · the mean, over the
 * channels that see this one, of dy · x · s^(−β−1).
 */
const lrn: GradientRule = at => {
  const { node } = at
  const [dy, x, size] = [at.dy(), at.input(0), intOf(node, 'size', 1)]
  const [alpha, beta] = [floatOf(node, 'alpha', 1e-4), floatOf(node, 'beta', 0.75)]
  const before = Math.floor((size - 1) / 2)
  const mean = (value: string, pad: number): string => {
    const rows = at.add('Reshape', [value, at.constant([0, 0, -1])])
    const planes = at.add('Unsqueeze', [rows, at.constant([1])])
    const pooled = at.add('AveragePool', [planes], {
      kernel_shape: ints([size, 1]),
      pads: ints([pad, 0, size - 1 - pad, 0]),
      count_include_pad: int(1),
    })
    return at.add('Reshape', [pooled, at.add('Shape', [x])], { allowzero: int(1) })
  }
  const scaled = at.add('Mul', [mean(at.add('Mul', [x, x]), before), at.constant(alpha)])
  const s = at.add('Add', [scaled, at.constant(floatOf(node, 'bias', 1))])
  const direct = at.add('Mul', [dy, at.add('Pow', [s, at.constant(-beta)])])
  const seen = mean(at.add('Div', [at.add('Mul', [direct, x]), s]), size - 1 - before)
  const rest = at.add('Mul', [at.add('Mul', [x, seen]), at.constant(2 * alpha * beta)])
  at.give(0, at.add('Sub', [direct, rest]))
}

/** With frozen statistics. */
const batchNormalization: GradientRule = at => {
  if (at.wants(3) || at.wants(4)) throw at.unsupported('mean and variance are frozen')
  if (intOf(at.node, 'training_mode', 0)) throw at.unsupported('training_mode is not supported yet')
  const inputs = [at.dy(), at.input(0), at.input(1), at.input(3), at.input(4)]
  addGradients(at, 'BatchNormalizationGrad', inputs, [0, 1, 2])
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
