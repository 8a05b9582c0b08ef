// context.ts: the context of a gradient rule: its node, and where gradients go.
import { SparkError } from '../../core/errors.js'
import { describeNode } from '../attributes.js'
import type { Constant } from '../constant.js'
import { type Attributes, makeNode, type Node, sparkDomain } from '../graph.js'
import { NodeBuilder } from '../node-builder.js'
import type { Fact } from '../shape-inference.js'

/** Gives the gradients of the inputs of a node, given those of its outputs. */
export type GradientRule = (ctx: GradientContext) => void

/** Rules by domain and operator; `none` where outputs are piecewise constant: steps, comparisons, sizes, indices. */
export type GradientTable = Readonly<Record<string, Readonly<Record<string, GradientRule | 'none'>>>>

/** What a {@link GradientContext} asks of the rewrite. */
export interface GradientScope {
  /** A name that nothing else has. */
  readonly fresh: (base: string) => string
  /** Nodes of the backward pass so far. */
  readonly nodes: Node[]
  /** Constants of the backward pass. */
  readonly constants: Map<string, Constant>
  /** Values that depend on what is differentiated. */
  readonly wanted: ReadonlySet<string>
  /** Parts of the gradient of each value. */
  readonly parts: Map<string, string[]>
  /** What is known of the values of the graph. */
  readonly facts: ReadonlyMap<string, Fact>
}

/** A node of the forward pass. */
export class GradientContext {
  readonly #scope: GradientScope
  readonly #builder: NodeBuilder
  #node: Node

  /** Made by {@link differentiate}. */
  constructor(node: Node, scope: GradientScope) {
    this.#node = node
    this.#scope = scope
    const { fresh, nodes, constants } = scope
    const define = (name: string, value: Constant) => constants.set(name, value)
    this.#builder = new NodeBuilder(
      { fresh, define, base: op => `gradient/${this.#node.outputs[0]}/${op}` },
      nodes,
    )
  }

  /** The node, with the outputs that were added to it. */
  get node(): Node {
    return this.#node
  }

  /** Name of input `i`. */
  input(i: number): string {
    return this.#node.inputs[i] ?? ''
  }

  /** Name of output `i`; one that the node leaves out is added to it. */
  output(i = 0): string {
    const name = this.#node.outputs[i]
    if (name) return name
    const outputs = Array.from({ length: Math.max(this.#node.outputs.length, i + 1) }, (_, at) =>
      at === i ? this.#scope.fresh(`${this.#node.outputs[0]}/${i}`) : (this.#node.outputs[at] ?? ''),
    )
    this.#node = { ...this.#node, outputs }
    return outputs[i]!
  }

  /** Number of dimensions of input `i`, where it is known. */
  rank(i: number): number | undefined {
    const type = this.#scope.facts.get(this.input(i))?.type
    return type?.kind === 'tensor' ? type.shape?.length : undefined
  }

  /** Whether the gradient of input `i` is wanted. */
  wants(i: number): boolean {
    return this.#scope.wanted.has(this.input(i))
  }

  /**
   * Name of the gradient of output 0.
   * @throws SparkError ERR_UNSUPPORTED when another output has one, too
   */
  dy(): string {
    const [dy, ...others] = this.#node.outputs.map(name => gradientOf(this.#scope, name))
    if (!dy || others.some(Boolean)) throw this.unsupported('only its first output can be differentiated')
    return dy
  }

  /** Name of the gradient of output `i`; undefined when nothing depends on it. */
  gradient(i: number): string | undefined {
    return gradientOf(this.#scope, this.#node.outputs[i] ?? '')
  }

  /** Says what the gradient of input `i` is, before it is summed over the axes along which the input was repeated. */
  giveSummed(i: number, gradient: string): void {
    if (this.wants(i)) this.give(i, this.add('SumLike', [gradient, this.input(i)], {}, sparkDomain))
  }

  /** Says what the gradient of input `i` is. */
  give(i: number, gradient: string): void {
    if (!this.wants(i)) return
    const parts = this.#scope.parts.get(this.input(i))
    if (parts) parts.push(gradient)
    else this.#scope.parts.set(this.input(i), [gradient])
  }

  /** Adds a node with one output and returns the name of that. */
  add(op: string, inputs: readonly string[], attributes: Attributes = {}, domain = ''): string {
    return this.#builder.add(op, inputs, attributes, domain)
  }

  /** Adds a node; outputs that are not wanted get the name ''. */
  addMany(
    op: string,
    inputs: readonly string[],
    wanted: readonly boolean[],
    attributes: Attributes = {},
    domain = '',
  ): string[] {
    return this.#builder.addMany(op, inputs, wanted, attributes, domain)
  }

  /** Name of a constant: one number, or a list of integers. */
  constant(value: number | readonly number[]): string {
    return this.#builder.constant(value, `constant/${value}`)
  }

  /** An error that names the node. */
  unsupported(what: string): SparkError {
    return new SparkError('ERR_UNSUPPORTED', `${describeNode(this.#node)} cannot be differentiated: ${what}`)
  }
}

/** Name of the sum of the parts of a gradient; undefined when nothing contributes. */
export function gradientOf(scope: GradientScope, name: string): string | undefined {
  const parts = scope.parts.get(name)
  if (!parts || parts.length < 2) return parts?.[0]
  const sum = scope.fresh(`gradient/${name}/Sum`)
  scope.nodes.push(makeNode('Sum', parts, [sum]))
  scope.parts.set(name, [sum])
  return sum
}
