// contrib-channels-last.ts: contributed operators whose channels come last, and normalizations that go with them, between
// two transposes.
import { float, floatOf, int, intOf, ints } from '../../attributes.js'
import { makeNode, type Node } from '../../graph.js'
import { type Upgrade, type UpgradeContext, without } from './context.js'

const toFront = (rank: number): number[] => [
  0,
  rank - 1,
  ...Array.from({ length: rank - 2 }, (_, i) => i + 1),
]
const toBack = (rank: number): number[] => [0, ...Array.from({ length: rank - 2 }, (_, i) => i + 2), 1]

/** An operator between transposes of its first operand, which has `rank` dimensions, and of its result. */
function between(node: Node, context: UpgradeContext, rank: number, upgrade: Upgrade): readonly Node[] {
  const [x = '', ...more] = node.inputs
  if (rank < 3) throw context.unsupported(node, `its input has ${rank} dimensions, so no channels at the end`)
  const [front, result] = [context.fresh(`${x}_front`), context.fresh(`${node.outputs[0]}_front`)]
  const inner = { ...node, inputs: [front, ...more], outputs: [result] }
  return [
    makeNode('Transpose', [x], [front], { attributes: { perm: ints(toFront(rank)) } }),
    ...upgrade(inner, context),
    makeNode('Transpose', [result], node.outputs, { attributes: { perm: ints(toBack(rank)) } }),
  ]
}

const channelsLast =
  (upgrade: Upgrade): Upgrade =>
  (node, context) =>
    between(node, context, context.rank(node, node.inputs[0] ?? ''), upgrade)

/** A standard operator under its own or another name. */
const renamed =
  (op: string): Upgrade =>
  node => [{ ...node, op, domain: '', attributes: without(node.attributes, 'channels_last') }]

/** Channels of the image and of the filters come last. */
const conv: Upgrade = (node, context) => {
  const weight = node.inputs[1] ?? ''
  const filters = context.fresh(`${weight}_front`)
  const perm = ints(toFront(context.rank(node, weight)))
  const inputs = node.inputs.with(1, filters)
  return [
    makeNode('Transpose', [weight], [filters], { attributes: { perm } }),
    ...channelsLast(renamed('Conv'))({ ...node, inputs }, context),
  ]
}

/** An operator whose attribute `channels_last` says where they are. */
export const byAttribute =
  (upgrade: Upgrade): Upgrade =>
  (node, context) =>
    intOf(node, 'channels_last') ? channelsLast(upgrade)(node, context) : upgrade(node, context)

/** Gain and bias are of f32, whatever the type of the input; the activation may be x · sigmoid(x). */
const groupNormalization: Upgrade = (node, context) => {
  const [x = '', gamma = '', beta = ''] = node.inputs
  const [gain, bias, plain] = ['gain', 'bias', 'plain'].map(part =>
    context.fresh(`${node.outputs[0]}_${part}`),
  ) as [string, string, string]
  const activation = intOf(node, 'activation')
  if (activation !== 0 && activation !== 1)
    throw context.unsupported(node, `the activation ${activation} is not known`)
  const attributes = {
    epsilon: float(floatOf(node, 'epsilon')),
    num_groups: int(intOf(node, 'groups')),
  }
  const outputs = activation ? [plain] : node.outputs
  return [
    makeNode('CastLike', [gamma, x], [gain]),
    makeNode('CastLike', [beta, x], [bias]),
    makeNode('GroupNormalization', [x, gain, bias], outputs, { name: node.name, attributes }),
    ...(activation ? [makeNode('Swish', [plain], node.outputs, { attributes: { alpha: float(1) } })] : []),
  ]
}

/** The sum of input, skip and bias, which is output 1, and its normalization. */
const skipGroupNormalization: Upgrade = (node, context) => {
  const [x = '', gamma = '', beta = '', skip = '', bias = ''] = node.inputs
  if (!intOf(node, 'channels_last')) throw context.unsupported(node, 'its channels come first')
  const nodes: Node[] = []
  const add = (op: string, inputs: readonly string[], output: string): string => {
    nodes.push(makeNode(op, inputs, [output]))
    return output
  }
  const fresh = (part: string): string => context.fresh(`${node.outputs[0]}_${part}`)
  const wide =
    context.rank(node, skip) === 2
      ? add('Unsqueeze', [skip, context.integers(`${skip}_axes`, [1, 2])], fresh('wide'))
      : skip
  const biased = bias === '' ? x : add('Add', [x, bias], fresh('biased'))
  const sum = add('Add', [biased, wide], node.outputs[1] || fresh('sum'))
  const inner = { ...node, inputs: [sum, gamma, beta], outputs: node.outputs.slice(0, 1) }
  return [...nodes, ...between(inner, context, context.rank(node, x), groupNormalization)]
}

/** Upgrades by operator. */
export const contribChannelsLast: Readonly<Record<string, Upgrade>> = {
  NhwcConv: conv,
  NhwcMaxPool: channelsLast(renamed('MaxPool')),
  QLinearConv: byAttribute(renamed('QLinearConv')),
  GroupNorm: byAttribute(groupNormalization),
  SkipGroupNorm: skipGroupNormalization,
}
