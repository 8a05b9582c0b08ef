// attribute-choices.ts: attributes that name one of several ways to compute.
import { SparkError } from '../../core/errors.js'
import { describeNode, intOf, stringOf } from '../attributes.js'
import type { Node } from '../graph.js'

/** Values of an attribute that there are. */
type Choices = Readonly<Record<string, readonly (string | number)[]>>

const each = (operators: string, choices: Choices): Record<string, Choices> =>
  Object.fromEntries(operators.split(' ').map(name => [name, choices]))

const windows = 'Conv ConvInteger QLinearConv ConvTranspose MaxPool AveragePool LpPool'

const byOperator: Readonly<Record<string, Choices>> = {
  ...each(windows, { auto_pad: ['NOTSET', '', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] }),
  ...each('RNN GRU LSTM', { direction: ['forward', 'reverse', 'bidirectional'] }),
  ...each('ScatterElements ScatterND', { reduction: ['none', 'add', 'mul', 'max', 'min'] }),
  ...each('SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss', { reduction: ['none', 'mean', 'sum'] }),
  Attention: { qk_matmul_output_mode: [0, 1, 2, 3] },
  BitShift: { direction: ['LEFT', 'RIGHT'] },
  Cast: { round_mode: ['up', 'down', 'nearest'] },
  CausalConvWithState: { activation: ['none', 'silu', 'swish'] },
  DepthToSpace: { mode: ['DCR', 'CRD'] },
  Gelu: { approximate: ['none', 'tanh'] },
  GridSample: {
    mode: ['nearest', 'linear', 'cubic', 'bilinear', 'bicubic'],
    padding_mode: ['zeros', 'border', 'reflection'],
  },
  LinearAttention: { update_rule: ['linear', 'gated', 'delta', 'gated_delta'] },
  LpNormalization: { p: [1, 2] },
  Pad: { mode: ['constant', 'edge', 'reflect', 'wrap'] },
  Resize: {
    mode: ['nearest', 'linear', 'cubic'],
    nearest_mode: ['round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil'],
    keep_aspect_ratio_policy: ['stretch', 'not_larger', 'not_smaller'],
    coordinate_transformation_mode: [
      ...['half_pixel', 'half_pixel_symmetric', 'pytorch_half_pixel', 'tf_half_pixel_for_nn'],
      ...['align_corners', 'asymmetric', 'tf_crop_and_resize'],
    ],
  },
  TensorScatter: { mode: ['linear', 'circular'] },
}

/**
 * Refuses attributes of operators of the standard whose value is none of those that there are.
 * @throws SparkError ERR_UNSUPPORTED naming the node
 */
export function expectChoices(node: Node): void {
  if (node.domain !== '' || !Object.hasOwn(byOperator, node.op)) return
  for (const [name, choices] of Object.entries(byOperator[node.op]!)) {
    const isNumber = typeof choices[0] === 'number'
    const value = isNumber ? intOf(node, name, undefined) : stringOf(node, name, undefined)
    if (value === undefined || choices.includes(value)) continue
    const known = choices.filter(choice => choice !== '').join(', ')
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${describeNode(node)}: ${name} is '${value}', not one of ${known}`,
    )
  }
}
