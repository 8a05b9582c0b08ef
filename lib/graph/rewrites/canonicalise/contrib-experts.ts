// contrib-experts.ts: mixtures of experts of the domain com.microsoft as a router and linear layers of experts.
import { float, floatOf, givenFloat, int, intOf, string, stringOf } from '../../attributes.js'
import { makeNode, type Node, sparkDomain } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import type { Upgrade, UpgradeContext } from './context.js'

/** Scores and numbers [tokens, k] of the experts of each token, by logits [tokens, experts]. */
function route(build: NodeBuilder, node: Node, logits: string): [scores: string, choice: string] {
  const all = build.add('Softmax', [logits], { axis: int(-1) })
  const k = build.constant([intOf(node, 'k')])
  const [scores = '', choice = ''] = build.addMany('TopK', [all, k], [true, true], { axis: int(-1) })
  if (intOf(node, 'normalize_routing_weights') !== 1) return [scores, choice]
  const sum = build.add('ReduceSum', [scores, build.constant([-1])], { keepdims: int(1) })
  return [build.add('Div', [scores, sum]), choice]
}

/** Gates and values [tokens, k, width] in one: by turns where `swiglu_fusion` is 1, else one behind the other. */
function gateAndValue(build: NodeBuilder, node: Node, both: string): [gate: string, value: string] {
  const halves = (x: string): [string, string] => {
    const attributes = { axis: int(-1), num_outputs: int(2) }
    return build.addMany('Split', [x], [true, true], attributes) as [string, string]
  }
  if (intOf(node, 'swiglu_fusion') !== 1) return halves(both)
  const pairs = build.add('Reshape', [both, build.constant([0, 0, -1, 2])])
  const columns = halves(pairs)
  return columns.map(column => build.add('Squeeze', [column, build.constant([-1])])) as [string, string]
}

/** gate · σ(alpha · gate) · (value + beta), both within the limit. */
function swiglu(
  build: NodeBuilder,
  node: Node,
  context: UpgradeContext,
  [gate, value]: [string, string],
): string {
  const number = (x: number): string => context.scalar(`${node.outputs[0]}_swiglu`, x, node.inputs[0]!)
  const limit = givenFloat(node, 'swiglu_limit')
  const [g, v] =
    limit === undefined
      ? [gate, value]
      : [build.add('Min', [gate, number(limit)]), build.add('Clip', [value, number(-limit), number(limit)])]
  const beta = floatOf(node, 'activation_beta')
  const swish = build.add('Swish', [g], { alpha: float(floatOf(node, 'activation_alpha')) })
  return build.add('Mul', [swish, beta === 0 ? v : build.add('Add', [v, number(beta)])])
}

/** The activation of other types, with a gate where there are weights of a third layer. */
function activated(
  build: NodeBuilder,
  node: Node,
  context: UpgradeContext,
  first: string,
  third: string | undefined,
): string {
  const type = stringOf(node, 'activation_type')
  if (type === 'swiglu')
    return swiglu(build, node, context, third ? [first, third] : gateAndValue(build, node, first))
  const ops: Readonly<Record<string, () => string>> = {
    identity: () => first,
    relu: () => build.add('Relu', [first]),
    silu: () => build.add('Swish', [first]),
    gelu: () => build.add('Gelu', [first], { approximate: string('tanh') }),
  }
  const made = ops[type]
  if (!made) throw context.unsupported(node, `the activation '${type}' is not known`)
  return third ? build.add('Mul', [made(), third]) : made()
}

const mixture: Upgrade = (node, context) => {
  const [x = '', router = '', fc1 = '', bias1 = '', fc2 = '', bias2 = '', fc3 = '', bias3 = ''] = node.inputs
  for (const name of ['use_sparse_mixer', 'num_shared_experts'])
    if (intOf(node, name) !== 0) throw context.unsupported(node, `${name} is not supported`)
  const width = context.shape(fc1)?.[2]
  if (typeof width !== 'number') throw context.unsupported(node, `the shape of '${fc1}' must be known`)
  const build = new NodeBuilder(context.scopeOf(node))
  const rows = build.add('Reshape', [x, build.constant([-1, width])])
  const [scores, choice] = route(build, node, router)
  const layer = (value: string, weight: string, bias: string): string =>
    build.add('ExpertLinear', [value, weight, choice, bias], {}, sparkDomain)
  const first = layer(rows, fc1, bias1)
  const third = fc3 === '' ? undefined : layer(rows, fc3, bias3)
  const results = layer(activated(build, node, context, first, third), fc2, bias2)
  const column = build.add('Unsqueeze', [scores, build.constant([-1])])
  const weighted = build.add('Mul', [results, column])
  const sum = build.add('ReduceSum', [weighted, build.constant([1])], { keepdims: int(0) })
  const shape = build.add('Shape', [x])
  return [...build.nodes, makeNode('Reshape', [sum, shape], node.outputs, { name: node.name })]
}

/** Upgrades by operator. */
export const contribExperts: Readonly<Record<string, Upgrade>> = { MoE: mixture }
