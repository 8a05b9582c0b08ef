// contrib-weights.ts: contributed operators whose weights alone are quantized: they are dequantized, and the rest is the
// standard operator in f32.
import { intOf, ints } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { makeNode, type Node } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import type { Upgrade, UpgradeContext } from './context.js'
import { embedNormalization } from './contrib-fused.js'

/** Weights [directions, inputs, gates] with a scale for each direction, or for each gate, as [directions, gates, inputs]. */
function lstmWeight(
  build: NodeBuilder,
  context: UpgradeContext,
  node: Node,
  [weight, scale, zero]: readonly [string, string, string],
): string {
  const rank = context.rank(node, scale)
  if (rank !== 1 && rank !== 2)
    throw context.unsupported(node, `a scale of ${rank} dimensions is not supported`)
  const axes = context.integers(`${scale}_axes`, rank === 1 ? [1, 2] : [1])
  const wide = (name: string): string => build.add('Unsqueeze', [name, axes])
  const number = (name: string): string => build.add('CastLike', [name, scale])
  const shifted = zero === '' ? number(weight) : build.add('Sub', [number(weight), wide(number(zero))])
  return build.add('Transpose', [build.add('Mul', [shifted, wide(scale)])], { perm: ints([0, 2, 1]) })
}

/** DynamicQuantizeLSTM. Inputs and states stay f32 here, which ONNX Runtime rounds to bytes in every step. */
const dynamicQuantizeLstm: Upgrade = (node, context) => {
  const build = new NodeBuilder(context.scopeOf(node))
  const [x = '', w = '', r = '', ...more] = node.inputs.slice(0, 8)
  const [wScale = '', wZero = '', rScale = '', rZero = ''] = node.inputs.slice(8)
  const weights = [
    lstmWeight(build, context, node, [w, wScale, wZero]),
    lstmWeight(build, context, node, [r, rScale, rZero]),
  ]
  return [...build.nodes, { ...node, op: 'LSTM', domain: '', inputs: [x, ...weights, ...more] }]
}

/** QEmbedLayerNormalization: tables, gain and bias are of bytes. */
const quantizedEmbedding: Upgrade = (node, context) => {
  const build = new NodeBuilder(context.scopeOf(node))
  const [words = '', segments = '', ...tables] = node.inputs.slice(0, 7)
  const [mask = ''] = node.inputs.slice(7)
  const floats = tables.map((table, i) =>
    table === ''
      ? ''
      : build.add('DequantizeLinear', [table, node.inputs[8 + i] ?? '', node.inputs[13 + i] ?? '']),
  )
  const inner = { ...node, op: 'EmbedLayerNormalization', inputs: [words, segments, ...floats, mask] }
  return [...build.nodes, ...embedNormalization(inner, context)]
}

/** What 4 bits mean, by `quant_type`: numbers with an exponent, and quantiles of a normal distribution. */
const fourBits = [
  [
    0,
    0.005208333333333333,
    2 / 3,
    1,
    1 / 3,
    0.5,
    1 / 6,
    0.25,
    -0,
    -0.005208333333333333,
    -2 / 3,
    -1,
    -1 / 3,
    -0.5,
    -1 / 6,
    -0.25,
  ],
  [
    -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
  ],
] as const

/** MatMulBnb4: y = x · Wᵀ with W[N, K] as codes of 4 bits, the first one in the high bits, and the largest size of each block. */
const matMulBnb4: Upgrade = (node, context) => {
  const [x = '', weight = '', largest = ''] = node.inputs
  const [n, k, block] = [intOf(node, 'N'), intOf(node, 'K'), intOf(node, 'block_size')]
  const values = fourBits[intOf(node, 'quant_type')]
  const [codes, sizes] = [context.constantOf(weight), context.constantOf(largest)]
  if (!values || codes?.dtype !== 'u8' || sizes?.dtype !== 'f32' || intOf(node, 'transB') !== 1)
    throw context.unsupported(node, 'only constant weights of the types FP4 and NF4 in f32 are supported')
  const count = n * k
  const fits = codes.count === Math.ceil(count / 2) && sizes.count === Math.ceil(count / block)
  if (Math.min(n, k, block) < 1 || !fits)
    throw context.unsupported(node, `N ${n}, K ${k} and block_size ${block} are not those of its weight`)
  const [bytes, scales] = [codes.bytes, sizes.data as Float32Array]
  const matrix = new Float32Array(count)
  for (let i = 0; i < count; i++) {
    const code = (bytes[i >> 1]! >> (i % 2 === 0 ? 4 : 0)) & 15
    matrix[(i % k) * n + Math.floor(i / k)] = values[code]! * scales[Math.floor(i / block)]!
  }
  const columns = context.constant(`${weight}_columns`, Constant.from('f32', [k, n], matrix))
  return [makeNode('MatMul', [x, columns], node.outputs, { name: node.name })]
}

/** Upgrades by operator. */
export const contribWeights: Readonly<Record<string, Upgrade>> = {
  DynamicQuantizeLSTM: dynamicQuantizeLstm,
  QEmbedLayerNormalization: quantizedEmbedding,
  MatMulBnb4: matMulBnb4,
}
