// rules.ts: for a node of whose output each rank makes a part: the parts of its inputs that it needs. One row per operator.
import { intOf } from '../../attributes.js'
import { type Node, sparkDomain } from '../../graph.js'
import { attentionRules } from './attention-rules.js'
import type { SplitFacts } from './facts.js'
import { layerRules } from './layer-rules.js'
import type { Layout } from './layout.js'
import { movementRules } from './movement-rules.js'
import { broadcastPart, type Part, type SplitRule, type SplitRules } from './part.js'

/** Elementwise functions, with inputs that are broadcast. */
const elementwise = [
  ...[
    'Abs',
    'Add',
    'And',
    'Cast',
    'Ceil',
    'Celu',
    'Clip',
    'Cos',
    'Div',
    'Dropout',
    'Elu',
    'Equal',
    'Erf',
    'Exp',
  ],
  ...[
    'Floor',
    'Gelu',
    'Greater',
    'GreaterOrEqual',
    'HardSigmoid',
    'HardSwish',
    'Identity',
    'LeakyRelu',
    'Less',
  ],
  ...['LessOrEqual', 'Log', 'Max', 'Mean', 'Min', 'Mish', 'Mod', 'Mul', 'Neg', 'Not', 'Or', 'PRelu', 'Pow'],
  ...['Reciprocal', 'Relu', 'Round', 'Selu', 'Sigmoid', 'Sign', 'Sin', 'Softplus', 'Softsign', 'Sqrt', 'Sub'],
  ...['Sum', 'Swish', 'Tanh', 'ThresholdedRelu', 'Where', 'Xor'],
]

const broadcast: SplitRule = (node, o, layout, facts) => {
  const shape = facts.shape(node.outputs[0]!)
  const size = shape?.[layout.axis]
  if (o !== 0 || !shape || size === undefined || node.outputs.slice(1).some(name => name !== ''))
    return undefined
  const inputs = node.inputs.map(name =>
    name === '' ? undefined : broadcastPart(facts.shape(name), shape.length, layout, size),
  )
  if (inputs.includes(null)) return undefined
  return { inputs: inputs as (Layout | undefined)[], outputs: [layout] }
}

/** Along an axis that is not the one of the layout. */
const alongOther: SplitRule = (node, o, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length
  if (o !== 0 || rank === undefined) return undefined
  const axis = intOf(node, 'axis')
  return (axis + rank) % rank === layout.axis ? undefined : { inputs: [layout], outputs: [layout] }
}

/** Normalizations over all axes from `axis` on. */
const overLast: SplitRule = (node, o, layout, facts) => {
  const rank = facts.shape(node.inputs[0]!)?.length
  if (o !== 0 || rank === undefined) return undefined
  const axis = (intOf(node, 'axis') + rank) % rank
  return layout.axis < axis ? { inputs: [layout], outputs: [layout] } : undefined
}

const standard: SplitRules = {
  ...Object.fromEntries(elementwise.map(op => [op, broadcast])),
  ...{ Softmax: alongOther, LogSoftmax: alongOther },
  ...{ LayerNormalization: overLast, RMSNormalization: overLast },
  ...movementRules,
  ...layerRules,
  ...attentionRules,
}

const own: SplitRules = {
  PagedAttention: attentionRules.PagedAttention!,
  ExpertLinear: layerRules.ExpertLinear!,
}

/** What a rank computes of a node whose output `o` is in parts; undefined where it must compute all of it. */
export function partOf(node: Node, o: number, layout: Layout, facts: SplitFacts): Part | undefined {
  const rules = node.domain === '' ? standard : node.domain === sparkDomain ? own : {}
  return Object.hasOwn(rules, node.op) ? rules[node.op]!(node, o, layout, facts) : undefined
}
