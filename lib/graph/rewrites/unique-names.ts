// unique-names.ts: gives every value of a model a name of its own, so that rewrites can look values up by name alone.
import { atOnce, type Paced } from '../../core/paced.js'
import { freshNamesPaced, mapSubgraphsPaced, subgraphsOf } from '../edit.js'
import type { Node, Subgraph } from '../graph.js'

/**
 * Renames values of subgraphs whose name another value has: branches often reuse names of their siblings, and some
 * exporters those of outer values. Values of the outermost graph keep their names.
 */
export function uniqueNames<G extends Subgraph>(graph: G): G {
  return atOnce(uniqueNamesPaced(graph))
}

/** {@link uniqueNames} with pauses. */
export function* uniqueNamesPaced<G extends Subgraph>(graph: G): Paced<G> {
  if (!graph.nodes.some(node => subgraphsOf(node).length > 0)) return graph
  const taken = new Set(definitions(graph))
  const fresh = yield* freshNamesPaced(graph)
  const nodes: Node[] = []
  for (const node of graph.nodes) {
    nodes.push(yield* mapSubgraphsPaced(node, inner => renameInner(inner, new Map(), taken, fresh)))
    yield
  }
  return nodes.every((node, i) => node === graph.nodes[i]) ? graph : { ...graph, nodes }
}

function definitions(graph: Subgraph): string[] {
  return [
    ...graph.inputs.map(({ name }) => name),
    ...graph.initializers.keys(),
    ...graph.nodes.flatMap(node => node.outputs.filter(name => name !== '')),
  ]
}

/** `outer`: new names of values around this graph. */
function* renameInner(
  graph: Subgraph,
  outer: ReadonlyMap<string, string>,
  taken: Set<string>,
  fresh: (base: string) => string,
): Paced<Subgraph> {
  const names = new Map(outer)
  for (const name of definitions(graph)) {
    names.delete(name)
    if (taken.has(name)) names.set(name, fresh(name))
    taken.add(names.get(name) ?? name)
  }
  const rename = (name: string): string => names.get(name) ?? name
  const nodes: Node[] = []
  for (const node of graph.nodes) {
    const inner = yield* mapSubgraphsPaced(node, subgraph => renameInner(subgraph, names, taken, fresh))
    const renamed = [...node.inputs, ...node.outputs].some(name => names.has(name))
    nodes.push(
      renamed ? { ...inner, inputs: inner.inputs.map(rename), outputs: inner.outputs.map(rename) } : inner,
    )
    yield
  }
  if (names.size === 0 && nodes.every((node, i) => node === graph.nodes[i])) return graph
  return {
    ...graph,
    inputs: graph.inputs.map(info => ({ ...info, name: rename(info.name) })),
    outputs: graph.outputs.map(info => ({ ...info, name: rename(info.name) })),
    nodes,
    initializers: new Map(Array.from(graph.initializers, ([name, constant]) => [rename(name), constant])),
    values: new Map(Array.from(graph.values, ([name, type]) => [rename(name), type])),
  }
}
