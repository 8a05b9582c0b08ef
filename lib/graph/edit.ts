// edit.ts: what rewrites ask of a graph and do to it.
import type { Attribute, Graph, Node, Subgraph } from './graph.js'

/** The graphs inside of a node's attributes: branches and loop bodies. */
export function subgraphsOf(node: Node): Subgraph[] {
  return Object.values(node.attributes).flatMap(attribute =>
    attribute.type === 'graph' ? [attribute.value] : attribute.type === 'graphs' ? attribute.value : [],
  )
}

/** Operators of the standard that draw numbers. */
const random = /^(RandomNormal|RandomUniform|Bernoulli|Multinomial|Dropout)/

/** Whether a node gives something else each time: it must be computed as often as the graph says, in every run. */
export function isRandom(node: Node): boolean {
  return (
    (node.domain === '' && random.test(node.op)) ||
    subgraphsOf(node).some(({ nodes }) => nodes.some(isRandom))
  )
}

/** A node whose subgraphs are replaced; the same node when `change` returns the subgraphs it got. */
export function mapSubgraphs(node: Node, change: (graph: Subgraph) => Subgraph): Node {
  let changed = false
  const apply = (graph: Subgraph): Subgraph => {
    const next = change(graph)
    changed ||= next !== graph
    return next
  }
  const attributes = Object.fromEntries(
    Object.entries(node.attributes).map(([name, attribute]): [string, Attribute] => {
      if (attribute.type === 'graph') return [name, { type: 'graph', value: apply(attribute.value) }]
      if (attribute.type === 'graphs') return [name, { type: 'graphs', value: attribute.value.map(apply) }]
      return [name, attribute]
    }),
  )
  return changed ? { ...node, attributes } : node
}

/** Names of outer values that a subgraph reads, also from graphs inside of it. */
export function capturesOf(graph: Subgraph): Set<string> {
  const own = new Set([...graph.inputs.map(({ name }) => name), ...graph.initializers.keys()])
  for (const node of graph.nodes) for (const name of node.outputs) own.add(name)
  const captures = new Set<string>()
  for (const name of [...graph.nodes.flatMap(readsOf), ...graph.outputs.map(output => output.name)]) {
    if (!own.has(name)) captures.add(name)
  }
  return captures
}

/** Names of the values a node reads: its inputs, and what its subgraphs read from outside. */
export function readsOf(node: Node): string[] {
  return [
    ...node.inputs.filter(name => name !== ''),
    ...subgraphsOf(node).flatMap(graph => [...capturesOf(graph)]),
  ]
}

/** The node that makes each value. */
export function producersOf(graph: Subgraph): Map<string, Node> {
  const producers = new Map<string, Node>()
  for (const node of graph.nodes) for (const name of node.outputs) if (name !== '') producers.set(name, node)
  return producers
}

/** The nodes that read each value, each once, in their order. Outputs of the graph do not count as readers. */
export function consumersOf(graph: Subgraph): Map<string, Node[]> {
  const consumers = new Map<string, Node[]>()
  for (const node of graph.nodes) {
    for (const name of new Set(readsOf(node))) {
      const list = consumers.get(name)
      if (list) list.push(node)
      else consumers.set(name, [node])
    }
  }
  return consumers
}

/** Names of all values of a graph, also in graphs inside of it. */
export function valueNames(graph: Subgraph, names = new Set<string>()): Set<string> {
  for (const { name } of [...graph.inputs, ...graph.outputs]) names.add(name)
  for (const name of graph.initializers.keys()) names.add(name)
  for (const node of graph.nodes) {
    for (const name of [...node.inputs, ...node.outputs]) names.add(name)
    for (const inner of subgraphsOf(node)) valueNames(inner, names)
  }
  return names
}

/** A maker of names that no value of `graph` has, and that it has not given before: `fresh('w')` is `w`, then `w_1`. */
export function freshNames(graph: Subgraph): (base: string) => string {
  const taken = valueNames(graph)
  const counts = new Map<string, number>()
  return base => {
    let name = base
    while (taken.has(name) || name === '') {
      const count = (counts.get(base) ?? 0) + 1
      counts.set(base, count)
      name = `${base}_${count}`
    }
    taken.add(name)
    return name
  }
}

/** The graph with every node replaced by what `change` makes of it, subgraphs included; undefined keeps a node. */
export function replaceNodes<G extends Subgraph>(
  graph: G,
  change: (node: Node, graph: Subgraph) => readonly Node[] | undefined,
): G {
  const nodes = graph.nodes.flatMap(node => {
    const inner = mapSubgraphs(node, subgraph => replaceNodes(subgraph, change))
    return change(inner, graph) ?? [inner]
  })
  return nodes.length === graph.nodes.length && nodes.every((node, i) => node === graph.nodes[i])
    ? graph
    : { ...graph, nodes }
}

/** The graph in which readers of a value read another one instead, subgraphs included. Its outputs keep their names. */
export function renameReads<G extends Subgraph>(graph: G, names: ReadonlyMap<string, string>): G {
  if (names.size === 0) return graph
  const rename = (name: string): string => names.get(name) ?? name
  const renameInner = (subgraph: Subgraph): Subgraph => ({
    ...renameReads(subgraph, names),
    // What a subgraph returns may be an outer value.
    outputs: subgraph.outputs.map(info => ({ ...info, name: rename(info.name) })),
  })
  const nodes = graph.nodes.map(node => {
    const inner = mapSubgraphs(node, renameInner)
    return inner.inputs.some(name => names.has(name)) ? { ...inner, inputs: inner.inputs.map(rename) } : inner
  })
  return { ...graph, nodes }
}

/** All nodes, those of subgraphs included, outer ones first. */
export function* allNodes(graph: Pick<Graph, 'nodes'>): Generator<Node> {
  for (const node of graph.nodes) {
    yield node
    for (const inner of subgraphsOf(node)) yield* allNodes(inner)
  }
}
