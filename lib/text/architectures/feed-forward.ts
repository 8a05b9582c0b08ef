// feed-forward.ts: the feed-forward network of a layer: dense, or a mixture of experts.
import { int } from '../../graph/attributes.js'
import type { GraphBuilder } from '../../graph/builder.js'
import { sparkDomain } from '../../graph/graph.js'
import type { Experts, FeedForwardActivation } from './config.js'
import type { DecoderWeights, ExpertWeights } from './decoder-weights.js'
import type { LayerNodes } from './layer-nodes.js'
import type { NamedWeights } from './named-weights.js'

/** What the feed-forward network of a layer is made with. */
export interface FeedForwardParts<Weights = DecoderWeights> {
  readonly graph: GraphBuilder
  readonly nodes: LayerNodes
  readonly weights: Weights
  readonly layer: number
  readonly activation: FeedForwardActivation
}

/** Matrices of a dense network. */
export type DensePart = 'gate' | 'up' | 'gateUp' | 'down'

/** Two halves of the last axis. */
function halves(g: GraphBuilder, x: string): [string, string] {
  const [first, second] = g.addMany('Split', [x], [true, true], { axis: int(-1), num_outputs: int(2) })
  return [first!, second!]
}

/** A dense network: down(activation(gate(x)) · up(x)), or without a gate down(activation(up(x))). */
export function denseNetwork(
  x: string,
  { graph, nodes, weights, layer, activation }: FeedForwardParts<NamedWeights<DensePart>>,
): string {
  const down = weights.part(layer, 'down')
  const width = down.weight.shape[down.isTransposed ? 0 : 1]!
  const gate = weights.optional(layer, 'gate')
  const both = weights.optional(layer, 'gateUp') ?? weights.part(layer, 'up')
  const wide = nodes.linear(x, both)
  const isFused = !gate && both.weight.shape[both.isTransposed ? 1 : 0] === 2 * width
  const [first, second] = isFused ? halves(graph, wide) : gate ? [nodes.linear(x, gate), wide] : [wide]
  return nodes.linear(nodes.activated(activation, first!, second), down)
}

/** A mixture: the experts that a router chooses for a token, added with their scores. */
export function expertNetwork(x: string, experts: Experts, parts: FeedForwardParts): string {
  const { graph: g, nodes, weights, layer, activation } = parts
  const logits = nodes.linear(x, weights.part(layer, 'router'))
  const [scores, choice] = chosen(g, logits, experts)
  const product = (value: string, { weight, bias, factors }: ExpertWeights): string => {
    const inputs = [value, g.constant(weight), choice, ...(bias ? [g.constant(bias)] : [])]
    const results = g.add('ExpertLinear', inputs, {}, sparkDomain)
    if (!factors) return results
    const chosenFactors = g.add('Gather', [g.constant(factors), choice])
    return g.add('Mul', [results, g.add('Unsqueeze', [chosenFactors, g.constant([-1])])])
  }
  const { gateUp, gate, up, down } = expertMatrices(parts, experts)
  const [first, second] = gateUp
    ? splitGateUp(g, product(x, gateUp), activation)
    : [product(x, gate!), product(x, up!)]
  const results = product(nodes.activated(activation, first, second), down)
  const column = g.add('Unsqueeze', [scores, g.constant([-1])])
  return g.add('ReduceSum', [g.add('Mul', [results, column]), g.constant([1])], { keepdims: int(0) })
}

/** Scores [tokens, used] and numbers [tokens, used] of the experts of each token. */
function chosen(g: GraphBuilder, logits: string, { used, scores, normalized }: Experts): [string, string] {
  const all = scores === 'all' ? g.add('Softmax', [logits], { axis: int(-1) }) : logits
  const [values, choice] = g.addMany('TopK', [all, g.constant([used])], [true, true], { axis: int(-1) })
  if (scores === 'used') return [g.add('Softmax', [values!], { axis: int(-1) }), choice!]
  if (!normalized) return [values!, choice!]
  const sum = g.add('ReduceSum', [values!, g.constant([-1])], { keepdims: int(1) })
  return [g.add('Div', [values!, sum]), choice!]
}

interface ExpertMatrices {
  readonly gateUp?: ExpertWeights
  readonly gate?: ExpertWeights
  readonly up?: ExpertWeights
  readonly down: ExpertWeights
}

function expertMatrices({ weights, layer }: FeedForwardParts, { count }: Experts): ExpertMatrices {
  const stacks = weights.expertStacks(layer, count)
  if (stacks) return { gate: stacks[0], up: stacks[1], down: stacks[2] }
  const down = weights.experts(layer, 'expertsDown')
  const gateUp = weights.optionalExperts(layer, 'expertsGateUp')
  if (gateUp) return { gateUp, down }
  return {
    gate: weights.experts(layer, 'expertsGate'),
    up: weights.experts(layer, 'expertsUp'),
    down,
  }
}

/** Gates and ups [tokens, used, width] of [tokens, used, 2 · width]: one after the other, in gpt-oss by turns. */
function splitGateUp(g: GraphBuilder, both: string, activation: FeedForwardActivation): [string, string] {
  if (activation !== 'clamped_swiglu') return halves(g, both)
  const pairs = g.add('Reshape', [both, g.constant([0, 0, -1, 2])])
  const last = (i: number): string => {
    const one = g.add('Slice', [pairs, g.constant([i]), g.constant([i + 1]), g.constant([3])])
    return g.add('Squeeze', [one, g.constant([3])])
  }
  return [last(0), last(1)]
}
