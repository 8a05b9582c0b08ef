// differentiate.ts: reverse-mode differentiation as a rewrite.
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../attributes.js'
import { Constant } from '../constant.js'
import { freshNames, readsOf } from '../edit.js'
import { type Graph, type Node, sparkDomain } from '../graph.js'
import { inferFacts } from '../shape-inference.js'
import { GradientContext, type GradientScope, gradientOf } from './context.js'
import { gradientRuleOf, stopsGradients } from './table.js'

/** Options of {@link differentiate}. */
export interface DifferentiateOptions {
  /** Name of the value to differentiate: one number. */
  readonly loss: string
  /** Names of the values that the gradients are for: initializers or inputs. */
  readonly wrt: readonly string[]
}

/** What {@link differentiate} gives. */
export interface Differentiated {
  /** The graph, with the backward pass behind it. Its outputs are the same. */
  readonly graph: Graph
  /** Name of the gradient of each value of `wrt`; of its shape. */
  readonly gradients: ReadonlyMap<string, string>
}

/**
 * Appends the nodes that compute gradients. Nothing is computed that no gradient of `wrt` needs.
 *
 * @throws SparkError ERR_UNSUPPORTED for an operator without a gradient rule, ERR_ARGUMENT when `loss` does not depend on
 * a value of `wrt`, ERR_SHAPE or ERR_DTYPE naming a node whose inputs do not fit
 */
export function differentiate(graph: Graph, { loss, wrt }: DifferentiateOptions): Differentiated {
  const fresh = freshNames(graph)
  const seed = fresh('gradient/loss')
  const scope: GradientScope = {
    fresh,
    nodes: [],
    constants: new Map([[seed, Constant.f32(1)]]),
    wanted: dependents(graph, wrt),
    parts: new Map([[loss, [seed]]]),
    facts: inferFacts(graph),
  }
  const forward: Node[] = []
  for (const node of [...graph.nodes].reverse()) forward.unshift(backward(node, scope))
  const gradients = new Map(
    wrt.map(name => {
      const gradient = gradientOf(scope, name)
      if (gradient) return [name, gradient]
      throw new SparkError('ERR_ARGUMENT', `'${loss}' does not depend on '${name}': there is no gradient`)
    }),
  )
  return {
    graph: {
      ...graph,
      nodes: [...forward, ...scope.nodes],
      initializers: new Map([...graph.initializers, ...scope.constants]),
      opsets: new Map([...graph.opsets, [sparkDomain, 1]]),
    },
    gradients,
  }
}

/** Values that move with those of `names`, these included. */
function dependents(graph: Graph, names: readonly string[]): Set<string> {
  const dependents = new Set(names)
  for (const node of graph.nodes) {
    if (stopsGradients(node) || !readsOf(node).some(name => dependents.has(name))) continue
    for (const name of node.outputs) dependents.add(name)
  }
  dependents.delete('')
  return dependents
}

/** Adds the backward nodes of a node; returns it with the outputs that they need. */
function backward(node: Node, scope: GradientScope): Node {
  const matters =
    node.outputs.some(name => scope.parts.has(name)) && readsOf(node).some(name => scope.wanted.has(name))
  if (!matters) return node
  const rule = gradientRuleOf(node)
  if (!rule) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${describeNode(node)} cannot be differentiated: there is no rule for it`,
    )
  }
  const ctx = new GradientContext(node, scope)
  rule(ctx)
  return ctx.node
}
