// semantics.ts: operators that meant something else in older versions.
import { floatsOf, givenFloat, givenInt, int, string } from '../../attributes.js'
import { Constant } from '../../constant.js'
import { makeNode, type Node } from '../../graph.js'
import { type Upgrade, type UpgradeContext, type UpgradeTable, without } from './context.js'

/**
 * Before opset 7, binary operators broadcast only when told to, and `axis` said where the second operand begins:
 * [2, 3, 4, 5] and [3, 4] at axis 1 is [2, 3, 4, 5] and [3, 4, 1].
 */
const broadcast: Upgrade = (node, context) => {
  const attributes = without(node.attributes, 'broadcast', 'axis', 'consumed_inputs')
  const axis = givenInt(node, 'axis')
  const [a = '', b = ''] = node.inputs
  if (context.int(node, 'broadcast') === 0 || axis === undefined) return [{ ...node, attributes }]
  const ranks = [context.rank(node, a), context.rank(node, b)] as const
  const start = axis < 0 ? axis + ranks[0] : axis
  return appendOnes(node, context, attributes, ranks[0] - start - ranks[1])
}

/** The node with `count` dimensions of size 1 after those of its second input. */
function appendOnes(
  node: Node,
  context: UpgradeContext,
  attributes: Node['attributes'],
  count: number,
): Node[] {
  const [a = '', b = ''] = node.inputs
  if (count <= 0) return [{ ...node, attributes }]
  const rank = context.rank(node, b)
  const axes = context.integers(
    `${b}_axes`,
    Array.from({ length: count }, (_, i) => rank + i),
  )
  const wide = context.fresh(`${b}_wide`)
  return [makeNode('Unsqueeze', [b, axes], [wide]), { ...node, inputs: [a, wide], attributes }]
}

/** Before opset 7, the slopes of PRelu were one for each channel. */
const prelu: Upgrade = (node, context) => {
  const attributes = without(node.attributes, 'consumed_inputs')
  const [x = '', slope = ''] = node.inputs
  if (context.shape(slope)?.length !== 1 || context.shape(slope)?.[0] === 1) return [{ ...node, attributes }]
  return appendOnes(node, context, attributes, context.rank(node, x) - 2)
}

/** Before opset 13, Softmax and its kin worked on the input flattened to a matrix at `axis`. */
const softmax: Upgrade = (node, context) => {
  const axis = context.int(node, 'axis')
  const x = node.inputs[0]!
  const shape = context.shape(x)
  const start = shape && axis < 0 ? axis + shape.length : axis
  const joined = shape?.slice(start)
  if (joined?.length === 1 || joined?.slice(1).every(dim => dim === 1)) {
    return [{ ...node, attributes: { axis: int(start) } }]
  }
  const [flat, done, sizes] = ['flat', 'matrix', 'shape'].map(part =>
    context.fresh(`${node.outputs[0]}_${part}`),
  ) as [string, string, string]
  return [
    makeNode('Shape', [x], [sizes]),
    makeNode('Flatten', [x], [flat], { attributes: { axis: int(axis) } }),
    makeNode(node.op, [flat], [done], { name: node.name, attributes: { axis: int(-1) } }),
    makeNode('Reshape', [done, sizes], node.outputs),
  ]
}

/** Before opset 14, outputs after the first asked for training; statistics were those of each element or channel. */
const batchNormalization: Upgrade = (node, context) => {
  if (context.int(node, 'spatial') !== 1)
    throw context.unsupported(node, 'it has statistics for each element (spatial = 0)')
  const training = node.outputs.slice(1).some(name => name !== '')
  if (node.outputs.slice(3).some(name => name !== '')) {
    throw context.unsupported(node, 'its outputs saved_mean and saved_var are no longer there')
  }
  const attributes = without(node.attributes, 'spatial', 'is_test', 'consumed_inputs')
  return [
    {
      ...node,
      outputs: training ? node.outputs.slice(0, 3) : node.outputs.slice(0, 1),
      attributes: training ? { ...attributes, training_mode: int(1) } : attributes,
    },
  ]
}

/** Upsample and the first Resize took pixel centres for corners and rounded down. */
const resizeAttributes = (node: Node, context: UpgradeContext): Node['attributes'] => ({
  mode: string(context.text(node, 'mode').replace('bilinear', 'linear')),
  coordinate_transformation_mode: string('asymmetric'),
  nearest_mode: string('floor'),
})

const upsample: Upgrade = (node, context) => {
  const [height, width] = [givenFloat(node, 'height_scale'), givenFloat(node, 'width_scale')]
  const list = height !== undefined && width !== undefined ? [1, 1, height, width] : floatsOf(node, 'scales')
  const scales = list
    ? context.constant(`${node.outputs[0]}_scales`, Constant.f32(list))
    : (node.inputs[1] ?? '')
  return [
    makeNode('Resize', [node.inputs[0]!, '', scales], node.outputs, {
      name: node.name,
      attributes: resizeAttributes(node, context),
    }),
  ]
}

const resize: Upgrade = (node, context) => {
  if (context.opset < 11) return upsample(node, context)
  if (context.text(node, 'coordinate_transformation_mode') === 'tf_half_pixel_for_nn') {
    throw context.unsupported(node, "'tf_half_pixel_for_nn' is no longer there")
  }
  // Inputs that were not meant had to be there, as tensors without elements.
  const inputs = node.inputs.map((name, i) => (i > 0 && context.shape(name)?.includes(0) ? '' : name))
  return [{ ...node, inputs }]
}

/** Before opset 21, GroupNormalization scaled groups; now it scales channels. */
const groupNormalization: Upgrade = (node, context) => {
  const [x = '', scale = '', bias = ''] = node.inputs
  const channels = context.shape(x)?.[1]
  const groups = context.int(node, 'num_groups')
  if (typeof channels !== 'number') throw context.unsupported(node, 'the number of channels must be known')
  const nodes: Node[] = []
  const spread = (name: string): string => {
    const [column, wide, result] = ['column', 'wide', 'channels'].map(part =>
      context.fresh(`${name}_${part}`),
    ) as [string, string, string]
    nodes.push(
      makeNode('Unsqueeze', [name, context.integers(`${name}_axes`, [1])], [column]),
      makeNode('Expand', [column, context.integers(`${name}_sizes`, [groups, channels / groups])], [wide]),
      makeNode('Reshape', [wide, context.integers(`${name}_shape`, [channels])], [result]),
    )
    return result
  }
  const inputs = [x, spread(scale), spread(bias)]
  return [...nodes, { ...node, inputs }]
}

const binary = 'Add Sub Mul Div Pow And Or Xor Equal Greater Less'

/** Upgrades by operator. */
export const semanticUpgrades: UpgradeTable = {
  ...Object.fromEntries(binary.split(' ').map(op => [op, { before: 7, upgrade: broadcast }])),
  PRelu: { before: 7, upgrade: prelu },
  Gemm: {
    before: 7,
    upgrade: node => [{ ...node, attributes: without(node.attributes, 'broadcast') }],
  },
  Softmax: { before: 13, upgrade: softmax },
  LogSoftmax: { before: 13, upgrade: softmax },
  Hardmax: { before: 13, upgrade: softmax },
  BatchNormalization: { before: 14, upgrade: batchNormalization },
  Upsample: { before: 99, upgrade: upsample },
  Resize: { before: 13, upgrade: resize },
  GroupNormalization: { before: 21, upgrade: groupNormalization },
}
