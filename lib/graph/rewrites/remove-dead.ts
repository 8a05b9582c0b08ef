// remove-dead.ts: nodes and constants that no output depends on.
import { atOnce, type Paced } from '../../core/paced.js'
import type { Constant } from '../constant.js'
import { readsOf } from '../edit.js'
import type { Graph, Node } from '../graph.js'

/** The graph without nodes and initializers that neither an output nor a state needs. */
export function removeDead(graph: Graph): Graph {
  return atOnce(removeDeadPaced(graph))
}

/** {@link removeDead} with pauses. */
export function* removeDeadPaced(graph: Graph): Paced<Graph> {
  const needed = new Set([...graph.outputs.map(({ name }) => name), ...(graph.updates?.values() ?? [])])
  const nodes: Node[] = []
  for (let i = graph.nodes.length - 1; i >= 0; i--) {
    const node = graph.nodes[i]!
    if (node.outputs.some(name => needed.has(name))) {
      for (const name of readsOf(node)) needed.add(name)
      nodes.push(node)
    }
    yield
  }
  nodes.reverse()
  const initializers = new Map<string, Constant>()
  for (const [name, constant] of graph.initializers) {
    if (needed.has(name) || graph.updates?.has(name)) initializers.set(name, constant)
    yield
  }
  return { ...graph, nodes, initializers }
}
