// builder.ts: a graph with nodes that are appended one by one.
import type { Constant } from './constant.js'
import { freshNames } from './edit.js'
import { type Graph, sparkDomain, type ValueInfo } from './graph.js'
import { NodeBuilder } from './node-builder.js'

/** A graph with nodes that are about to be added. */
export class GraphBuilder extends NodeBuilder {
  readonly #graph: Graph
  readonly #initializers: Map<string, Constant>
  readonly #inputs: ValueInfo[] = []

  /** @param prefix - what names of new values start with */
  constructor(graph: Graph, prefix: string) {
    const initializers = new Map<string, Constant>()
    super({
      fresh: freshNames(graph),
      define: (name, value) => initializers.set(name, value),
      base: op => `${prefix}/${op}`,
    })
    this.#graph = graph
    this.#initializers = initializers
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
      nodes: [...graph.nodes, ...this.nodes],
      initializers: new Map([...graph.initializers, ...this.#initializers]),
      opsets: new Map([...graph.opsets, [sparkDomain, 1]]),
    }
  }

  /** The graph with everything that was added in the place of its own nodes. */
  rebuild(): Graph {
    return { ...this.build(), nodes: this.nodes }
  }
}
