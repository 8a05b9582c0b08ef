// builder.ts: appends nodes to a graph one by one, with names that nothing else has.
import { Constant } from './constant.js'
import { freshNames } from './edit.js'
import { type Attributes, type Graph, makeNode, type Node, sparkDomain, type ValueInfo } from './graph.js'

/** A graph with nodes that are about to be added. */
export class GraphBuilder {
  readonly #graph: Graph
  readonly #prefix: string
  readonly #fresh: (base: string) => string
  readonly #nodes: Node[] = []
  readonly #initializers = new Map<string, Constant>()
  readonly #inputs: ValueInfo[] = []

  /** @param prefix - what names of new values start with */
  constructor(graph: Graph, prefix: string) {
    this.#graph = graph
    this.#prefix = prefix
    this.#fresh = freshNames(graph)
  }

  /** A name that nothing else has. */
  fresh(base: string): string {
    return this.#fresh(base)
  }

  /** Adds a node with one output and returns the name of that. */
  add(op: string, inputs: readonly string[], attributes: Attributes = {}, domain = ''): string {
    const output = this.#fresh(`${this.#prefix}/${op}`)
    this.append(makeNode(op, inputs, [output], { domain, attributes }))
    return output
  }

  /** Adds a node of any form. */
  append(node: Node): void {
    this.#nodes.push(node)
  }

  /** Name of a constant: one f32 number, or a list of integers. */
  constant(value: number | readonly number[]): string {
    return this.initializer(
      `${this.#prefix}/constant`,
      typeof value === 'number' ? Constant.f32(value) : Constant.i64(value),
    )
  }

  /** Adds an initializer and returns its name, which is `base` unless that is taken. */
  initializer(base: string, value: Constant): string {
    const name = this.#fresh(base)
    this.#initializers.set(name, value)
    return name
  }

  /** Adds an input of the graph. */
  input(info: ValueInfo): void {
    this.#inputs.push(info)
  }

  /** The graph with everything that was added behind its own nodes. */
  build(): Graph {
    const graph = this.#graph
    return {
      ...graph,
      inputs: [...graph.inputs, ...this.#inputs],
      nodes: [...graph.nodes, ...this.#nodes],
      initializers: new Map([...graph.initializers, ...this.#initializers]),
      opsets: new Map([...graph.opsets, [sparkDomain, 1]]),
    }
  }

  /** The graph with everything that was added in the place of its own nodes. */
  rebuild(): Graph {
    return { ...this.build(), nodes: this.#nodes }
  }
}
