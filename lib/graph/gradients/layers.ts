// layers.ts: gradients of matrix products, convolutions, normalization, DoRA layers and losses.

import { float, floatOf, int, intOf, ints, string } from '../attributes.js'
import { sparkDomain } from '../graph.js'
import type { GradientContext, GradientRule, GradientTable } from './context.js'

/** y = alpha · op(a) · op(b) + beta · c */
const gemm: GradientRule = at => {
  const dy = at.dy()
  const [a, b, c] = [at.input(0), at.input(1), at.input(2)]
  const [transA, transB] = [intOf(at.node, 'transA', 0), intOf(at.node, 'transB', 0)]
  const product = (left: string, transLeft: number, right: string, transRight: number): string =>
    at.add('Gemm', [left, right], {
      alpha: float(floatOf(at.node, 'alpha', 1)),
      transA: int(transLeft),
      transB: int(transRight),
    })
  if (at.wants(0)) at.give(0, transA ? product(b, transB, dy, 1) : product(dy, 0, b, 1 - transB))
  if (at.wants(1)) at.give(1, transB ? product(dy, 1, a, transA) : product(a, 1 - transA, dy, 0))
  if (!c || !at.wants(2)) return
  const beta = floatOf(at.node, 'beta', 1)
  const scaled = beta === 1 ? dy : at.add('Mul', [dy, at.constant(beta)])
  at.giveSummed(2, scaled)
}

/** Batches of matrices, a vector being a row on the left and a column on the right; what was repeated gets the sum. */
const matmul: GradientRule = at => {
  const [row, column] = [at.rank(0) === 1, at.rank(1) === 1]
  const raised = (value: string, axis: number): string => at.add('Unsqueeze', [value, at.constant([axis])])
  const [a, b] = [row ? raised(at.input(0), 0) : at.input(0), column ? raised(at.input(1), 1) : at.input(1)]
  const whole = column ? raised(at.dy(), -1) : at.dy()
  const dy = row ? raised(whole, -2) : whole
  const product = (left: string, right: string, transposed: 'transA' | 'transB'): string =>
    at.add('FusedMatMul', [left, right], { [transposed]: int(1) }, sparkDomain)
  if (at.wants(0)) at.giveSummed(0, product(dy, b, 'transB'))
  if (!at.wants(1)) return
  const db = product(a, dy, 'transA')
  at.giveSummed(1, column ? at.add('Squeeze', [db, at.constant([-1])]) : db)
}

/** Adds a node with an output for each of the given inputs that is wanted, and gives it to that input. */
function addGradients(
  at: GradientContext,
  op: string,
  inputs: readonly string[],
  targets: readonly number[],
): void {
  const wanted = targets.map(i => at.wants(i))
  const gradients = at.addMany(op, inputs, wanted, at.node.attributes, sparkDomain)
  targets.forEach((i, n) => {
    at.give(i, gradients[n]!)
  })
}

const conv: GradientRule = at => addGradients(at, 'ConvGrad', [at.dy(), at.input(0), at.input(1)], [0, 1, 2])

const convTranspose: GradientRule = at =>
  addGradients(at, 'ConvTransposeGrad', [at.dy(), at.input(0), at.input(1)], [0, 1, 2])

/** Q, K, V; what the mask and the past depend on is frozen. */
const attention: GradientRule = at => {
  if ([3, 4, 5].some(i => at.wants(i))) throw at.unsupported('mask and past are frozen')
  addGradients(at, 'AttentionGrad', [at.dy(), ...at.node.inputs], [0, 1, 2])
}

const einsum: GradientRule = at => {
  const operands = at.node.inputs.map((_, i) => i)
  addGradients(at, 'EinsumGrad', [at.dy(), ...at.node.inputs], operands)
}

/** dx from dy and x. */
const pool: GradientRule = at => addGradients(at, `${at.node.op}Grad`, [at.dy(), at.input(0)], [0])

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

/** x, W, A, B, magnitude, bias, dropout mask; W is frozen. */
const dora: GradientRule = at => {
  if (at.wants(1)) throw at.unsupported('its weight is frozen')
  const operands = [0, 1, 2, 3, 4].map(i => at.input(i))
  const kept = [1, 2, 3, 4].map(i => at.output(i))
  addGradients(at, 'DoRAGrad', [at.dy(), ...operands, ...kept, at.input(6)], [0, 2, 3, 4, 5])
}

/** W, A, B, magnitude; W is frozen. */
const doraWeight: GradientRule = at => {
  if (at.wants(0)) throw at.unsupported('its weight is frozen')
  const inputs = [at.dy(), at.input(0), at.input(1), at.input(2), at.output(1), at.output(2)]
  addGradients(at, 'DoRAWeightGrad', inputs, [1, 2, 3])
}

const crossEntropy: GradientRule = at => {
  const inputs = [at.dy(), ...at.node.inputs]
  at.give(0, at.add('SoftmaxCrossEntropyLossGrad', inputs, at.node.attributes, sparkDomain))
}

/** Rules of layers and losses. */
export const layers: GradientTable = {
  '': {
    Gemm: gemm,
    MatMul: matmul,
    Conv: conv,
    ConvTranspose: convTranspose,
    Attention: attention,
    Einsum: einsum,
    MaxPool: pool,
    AveragePool: pool,
    GlobalAveragePool: pool,
    BatchNormalization: batchNormalization,
    LayerNormalization: normalization,
    RMSNormalization: normalization,
    GroupNormalization: normalization,
    InstanceNormalization: normalization,
    LRN: lrn,
    SoftmaxCrossEntropyLoss: crossEntropy,
  },
  [sparkDomain]: { DoRA: dora, DoRAWeight: doraWeight },
}
