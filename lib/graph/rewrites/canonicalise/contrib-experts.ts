// contrib-experts.ts: mixtures of experts of the domain com.microsoft as a router and linear layers of experts.
import { float, floatOf, givenFloat, int, intOf, string, stringOf } from '../../attributes.js'
import { makeNode, type Node, sparkDomain } from '../../graph.js'
import { NodeBuilder } from '../../node-builder.js'
import type { Upgrade, UpgradeContext } from './context.js'
import { giveHalf, halfType, widened } from './wide.js'

/** What routes tokens to experts. */
export interface Router {
  /** Logits [tokens, experts], which choose experts. */
  readonly logits: string
  /** Scores [tokens, experts] in the place of the softmax of the logits; '': none. */
  readonly scores: string
}

/** Scores and numbers [tokens, k] of the experts of each token. */
function route(
  build: NodeBuilder,
  node: Node,
  { logits, scores: given }: Router,
): [scores: string, choice: string] {
  const all = build.add('Softmax', [logits], { axis: int(-1) })
  const k = build.constant([intOf(node, 'k')])
  const [best = '', choice = ''] = build.addMany('TopK', [all, k], [true, true], { axis: int(-1) })
  const scores = given === '' ? best : build.add('GatherElements', [given, choice], { axis: int(-1) })
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
  const number = (x: number): string => context.scalar(`${node.outputs[0]}_swiglu`, x, gate)
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

/** A layer of experts, of values by the numbers of experts. */
export type Layer = (value: string, choice: string) => string

/** The parts of a mixture. */
export interface Mixture {
  readonly router: Router
  /** In features of the first layer. */
  readonly width: number
  readonly first: Layer
  readonly second: Layer
  readonly third: Layer | undefined
}

/** The weighted sum of what experts make of each token of input 0, in f32 but for the result. */
export function mixed(
  build: NodeBuilder,
  node: Node,
  context: UpgradeContext,
  { router, width, first, second, third }: Mixture,
): readonly Node[] {
  if (intOf(node, 'use_sparse_mixer') !== 0)
    throw context.unsupported(node, 'use_sparse_mixer is not supported')
  const [x = ''] = node.inputs
  const wide = (name: string): string => widened(build, context, name)
  const rows = build.add('Reshape', [wide(x), build.constant([-1, width])])
  const [scores, choice] = route(build, node, { logits: wide(router.logits), scores: wide(router.scores) })
  const values = activated(build, node, context, first(rows, choice), third?.(rows, choice))
  const column = build.add('Unsqueeze', [scores, build.constant([-1])])
  const weighted = build.add('Mul', [second(values, choice), column])
  const sum = build.add('ReduceSum', [weighted, build.constant([1])], { keepdims: int(0) })
  const half = halfType(context, x)
  const shaped = half ? build.fresh(`${node.outputs[0]}_f32`) : node.outputs[0]!
  build.append(makeNode('Reshape', [sum, build.add('Shape', [x])], [shaped], { name: node.name }))
  if (half) giveHalf(build, shaped, node, half)
  return build.nodes
}

/** A layer whose weight [experts, out features, in features] and bias are values. */
export const expertLayer =
  (build: NodeBuilder, weight: string, bias: string): Layer =>
  (value, choice) =>
    build.add('ExpertLinear', [value, weight, choice, bias], {}, sparkDomain)

const mixture: Upgrade = (node, context) => {
  const [, logits = '', fc1 = '', bias1 = '', fc2 = '', bias2 = '', fc3 = '', bias3 = ''] = node.inputs
  if (intOf(node, 'num_shared_experts') !== 0)
    throw context.unsupported(node, 'num_shared_experts is not supported')
  const width = context.shape(fc1)?.[2]
  if (typeof width !== 'number') throw context.unsupported(node, `the shape of '${fc1}' must be known`)
  const build = new NodeBuilder(context.scopeOf(node))
  return mixed(build, node, context, {
    ...{ router: { logits, scores: '' }, width },
    first: expertLayer(build, fc1, bias1),
    second: expertLayer(build, fc2, bias2),
    third: fc3 === '' ? undefined : expertLayer(build, fc3, bias3),
  })
}

/** Upgrades by operator. */
export const contribExperts: Readonly<Record<string, Upgrade>> = { MoE: mixture }
