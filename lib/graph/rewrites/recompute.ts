// recompute.ts: trades time for memory: the backward pass computes again what the forward pass does not keep.
import { freshNames, readsOf, renameReads } from '../edit.js'
import type { Graph, Node } from '../graph.js'

/** Options of {@link recompute}. */
export interface RecomputeOptions {
  /** Nodes of the forward pass: the first ones of the graph. */
  readonly forward: number
  /** Runs of nodes that the forward pass is cut into; 1 recomputes nothing. */
  readonly segments: number
}

/**
 * Cuts the forward pass into runs of as many nodes. Of each run only those values stay in memory that a later run reads;
 * the backward pass computes the others again, the whole run at once, before it first needs one of them (Chen et al.
 * 2016). The last run is needed at once and stays. Results are the same bits.
 */
export function recompute(graph: Graph, { forward, segments }: RecomputeOptions): Graph {
  const fresh = freshNames(graph)
  const size = Math.ceil(forward / segments)
  const runs = Array.from({ length: Math.max(0, segments - 1) }, (_, i) => {
    return runOf(
      graph,
      graph.nodes.slice(i * size, (i + 1) * size),
      graph.nodes.slice((i + 1) * size, forward),
    )
  }).filter(({ lost }) => lost.size > 0)
  const names = new Map<string, string>()
  for (const { lost } of runs) for (const name of lost) names.set(name, fresh(`${name}/again`))
  const nodes = graph.nodes.slice(0, forward)
  const waiting = new Set(runs)
  for (const node of graph.nodes.slice(forward)) {
    const reads = readsOf(node)
    for (const run of waiting) {
      if (!reads.some(name => run.lost.has(name))) continue
      for (const again of repeated(run, names, fresh)) nodes.push(again)
      waiting.delete(run)
    }
    nodes.push(renameReads({ ...graph, nodes: [node] }, names).nodes[0]!)
  }
  return { ...graph, nodes }
}

/** Nodes of the forward pass, and the values of theirs that are computed again. */
interface Run {
  readonly nodes: readonly Node[]
  readonly lost: ReadonlySet<string>
}

function runOf(graph: Graph, nodes: readonly Node[], later: readonly Node[]): Run {
  const kept = new Set([
    ...later.flatMap(readsOf),
    ...graph.outputs.map(({ name }) => name),
    ...(graph.updates?.values() ?? []),
  ])
  const made = nodes.flatMap(({ outputs }) => outputs).filter(name => name !== '' && !kept.has(name))
  return { nodes, lost: new Set(made) }
}

/** The nodes of a run again; values that were kept are read, and made a second time for nobody. */
function repeated(
  { nodes, lost }: Run,
  names: ReadonlyMap<string, string>,
  fresh: (base: string) => string,
): Node[] {
  return nodes
    .filter(({ outputs }) => outputs.some(name => lost.has(name)))
    .map(node => {
      const inputs = node.inputs.map(name => (lost.has(name) ? names.get(name)! : name))
      const outputs = node.outputs.map(name =>
        name === '' ? '' : (names.get(name) ?? fresh(`${name}/again`)),
      )
      return { ...node, inputs, outputs }
    })
}
