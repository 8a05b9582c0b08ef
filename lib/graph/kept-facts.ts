// kept-facts.ts: facts that are kept with the graph they were inferred for, so that each graph is inferred once.
import type { Graph, Subgraph } from './graph.js'
import type { Fact } from './shapes/context.js'
import { knownConstant } from './shapes/known-values.js'

/** Facts of all values of a graph for the sizes of its inputs; no node in it has inputs that do not fit together. */
export interface KeptFacts {
  readonly facts: ReadonlyMap<string, Fact>
  /** Whether sizes that could not be inferred are those that the file declares. */
  readonly trustFile: boolean
}

/** Graphs never change. */
const kept = new WeakMap<Subgraph, KeptFacts>()

/** The facts of a graph, where they were kept. */
export const keptFacts = (graph: Subgraph): KeptFacts | undefined => kept.get(graph)

/** Keeps the facts of a graph; nobody may change them from now on. */
export function keepFacts(graph: Subgraph, facts: KeptFacts): void {
  kept.set(graph, facts)
}

/**
 * Keeps the facts of a graph for another one that has no value of another name and type, except for initializers. An
 * initializer that was replaced may be read only by nodes whose shapes do not depend on its elements.
 * @returns the other graph
 */
export function carryFacts(from: Graph, to: Graph): Graph {
  const source = kept.get(from)
  if (!source || from === to) return to
  const facts = new Map(source.facts)
  for (const [name, constant] of to.initializers) {
    if (constant === from.initializers.get(name)) continue
    const { dtype, shape } = constant
    facts.set(name, { type: { kind: 'tensor', dtype, shape }, known: knownConstant(constant) })
  }
  kept.set(to, { ...source, facts })
  return to
}
