// remove-dead.ts: nodes and constants that no output depends on.
import { capturesOf, readsOf } from '../edit.js'
import type { Graph, Node } from '../graph.js'

/** The graph without nodes and initializers that neither an output nor a state needs. */
export function removeDead(graph: Graph): Graph {
  const needed = new Set([...graph.outputs.map(({ name }) => name), ...(graph.updates?.values() ?? [])])
  const nodes: Node[] = []
  for (const node of [...graph.nodes].reverse()) {
    if (!node.outputs.some(name => needed.has(name))) continue
    for (const name of readsOf(node)) needed.add(name)
    nodes.push(node)
  }
  nodes.reverse()
  const read = new Set([...capturesOf({ ...graph, inputs: [], initializers: new Map(), nodes }), ...needed])
  const initializers = new Map(
    [...graph.initializers].filter(([name]) => read.has(name) || graph.updates?.has(name)),
  )
  return { ...graph, nodes, initializers }
}
