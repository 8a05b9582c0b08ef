// edit.ts: queries and edits of graphs that rewrites share.
import { atOnce, type Paced } from '../core/paced.js'
import type { Attribute, Graph, Node, Subgraph, ValueInfo } from './graph.js'

/** The graphs inside of a node's attributes: branches and loop bodies. */
export function subgraphsOf(node: Node): Subgraph[] {
  const graphs: Subgraph[] = []
  for (const name in node.attributes) {
    const attribute = node.attributes[name]!
    if (attribute.type === 'graph') graphs.push(attribute.value)
    else if (attribute.type === 'graphs') for (const graph of attribute.value) graphs.push(graph)
  }
  return graphs
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
  if (subgraphsOf(node).length === 0) return node
  // biome-ignore lint/correctness/useYield: there is nothing to wait for
  const now = function* (graph: Subgraph): Paced<Subgraph> {
    return change(graph)
  }
  return atOnce(mapSubgraphsPaced(node, now))
}

/** {@link mapSubgraphs} with pauses. */
export function* mapSubgraphsPaced(node: Node, change: (graph: Subgraph) => Paced<Subgraph>): Paced<Node> {
  if (subgraphsOf(node).length === 0) return node
  let changed = false
  const apply = function* (graph: Subgraph): Paced<Subgraph> {
    const next = yield* change(graph)
    changed ||= next !== graph
    return next
  }
  const attributes: [string, Attribute][] = []
  for (const [name, attribute] of Object.entries(node.attributes)) {
    if (attribute.type === 'graph') {
      attributes.push([name, { type: 'graph', value: yield* apply(attribute.value) }])
    } else if (attribute.type === 'graphs') {
      const value: Subgraph[] = []
      for (const graph of attribute.value) value.push(yield* apply(graph))
      attributes.push([name, { type: 'graphs', value }])
    } else attributes.push([name, attribute])
  }
  return changed ? { ...node, attributes: Object.fromEntries(attributes) } : node
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
  const reads = node.inputs.filter(name => name !== '')
  for (const graph of subgraphsOf(node)) for (const name of capturesOf(graph)) reads.push(name)
  return reads
}

/** The node that makes each value. */
export function producersOf(graph: Subgraph): Map<string, Node> {
  return atOnce(producersOfPaced(graph))
}

/** {@link producersOf} with pauses. */
export function* producersOfPaced(graph: Subgraph): Paced<Map<string, Node>> {
  const producers = new Map<string, Node>()
  for (const node of graph.nodes) {
    for (const name of node.outputs) if (name !== '') producers.set(name, node)
    yield
  }
  return producers
}

/** The nodes that read each value, each once, in their order. Outputs of the graph do not count as readers. */
export function consumersOf(graph: Subgraph): Map<string, Node[]> {
  return atOnce(consumersOfPaced(graph))
}

/** {@link consumersOf} with pauses. */
export function* consumersOfPaced(graph: Subgraph): Paced<Map<string, Node[]>> {
  const consumers = new Map<string, Node[]>()
  for (const node of graph.nodes) {
    for (const name of new Set(readsOf(node))) {
      const list = consumers.get(name)
      if (list) list.push(node)
      else consumers.set(name, [node])
    }
    yield
  }
  return consumers
}

/** Adds the names of all values of a graph, also in graphs inside of it. */
function* collectNames(graph: Subgraph, names: Set<string>): Paced<Set<string>> {
  for (const { name } of [...graph.inputs, ...graph.outputs]) names.add(name)
  for (const name of graph.initializers.keys()) {
    names.add(name)
    yield
  }
  for (const node of graph.nodes) {
    for (const name of node.inputs) names.add(name)
    for (const name of node.outputs) names.add(name)
    for (const inner of subgraphsOf(node)) yield* collectNames(inner, names)
    yield
  }
  return names
}

/** Names of all values of a graph, also in graphs inside of it. */
export function valueNames(graph: Subgraph): Set<string> {
  return atOnce(collectNames(graph, new Set()))
}

/** A maker of names that no value of `graph` has, and that it has not given before: `fresh('w')` is `w`, then `w_1`. */
export function freshNames(graph: Subgraph): (base: string) => string {
  return atOnce(freshNamesPaced(graph))
}

/** {@link freshNames} with pauses. */
export function* freshNamesPaced(graph: Subgraph): Paced<(base: string) => string> {
  const taken = yield* collectNames(graph, new Set())
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
  return atOnce(renameReadsPaced(graph, names))
}

/** {@link renameReads} with pauses. */
export function* renameReadsPaced<G extends Subgraph>(
  graph: G,
  names: ReadonlyMap<string, string>,
): Paced<G> {
  if (names.size === 0) return graph
  const rename = (name: string): string => names.get(name) ?? name
  const renameInner = function* (subgraph: Subgraph): Paced<Subgraph> {
    return {
      ...(yield* renameReadsPaced(subgraph, names)),
      // What a subgraph returns may be an outer value.
      outputs: subgraph.outputs.map(info => ({ ...info, name: rename(info.name) })),
    }
  }
  const nodes: Node[] = []
  for (const node of graph.nodes) {
    const inner = yield* mapSubgraphsPaced(node, renameInner)
    const reads = inner.inputs.some(name => names.has(name))
    nodes.push(reads ? { ...inner, inputs: inner.inputs.map(rename) } : inner)
    yield
  }
  return { ...graph, nodes }
}

/** All nodes, those of subgraphs included, outer ones first. */
export function* allNodes(graph: Pick<Graph, 'nodes'>): Generator<Node> {
  for (const node of graph.nodes) {
    yield node
    for (const inner of subgraphsOf(node)) yield* allNodes(inner)
  }
}

/** Names that many exporters give to a cache of keys and values, without what says on which side of the model it is. */
const pastName = /(^|[._/])past(_key_values?)?(?=$|[._/\d])/
const presentName = /(^|[._/])present(_key_values?)?(?=$|[._/\d])/

/** What names of outputs begin with that become the input of the rest of their name. */
const nextPrefix = 'next_'

/** Outputs by the inputs that they replace, where names differ in `past` (`past_key_values`) and `present` only. */
export function pastStates(
  inputs: readonly Pick<ValueInfo, 'name'>[],
  outputs: readonly Pick<ValueInfo, 'name'>[],
): Map<string, string> {
  const plain = (name: string, pattern: RegExp): string => name.replace(pattern, '$1cache')
  const presents = new Map(
    outputs.filter(({ name }) => presentName.test(name)).map(({ name }) => [plain(name, presentName), name]),
  )
  const pairs = new Map<string, string>()
  for (const { name } of inputs) {
    const output = pastName.test(name) ? presents.get(plain(name, pastName)) : undefined
    if (output !== undefined) pairs.set(name, output)
  }
  return pairs
}

/** {@link pastStates}, and outputs `next_x` of inputs `x`. */
export function namedStates(
  inputs: readonly Pick<ValueInfo, 'name'>[],
  outputs: readonly Pick<ValueInfo, 'name'>[],
): Map<string, string> {
  const pairs = pastStates(inputs, outputs)
  const made = new Set(outputs.map(({ name }) => name))
  for (const { name } of inputs) if (made.has(nextPrefix + name)) pairs.set(name, nextPrefix + name)
  return pairs
}
