// reach.ts: which values depend on others.
import { readsOf } from '../../graph/edit.js'
import type { Node, Subgraph } from '../../graph/graph.js'

/**
 * The values that depend on `sources`, these included.
 * @param passes - whether a node hands a dependency on; default: all do
 */
export function reachOf(
  { nodes }: Pick<Subgraph, 'nodes'>,
  sources: Iterable<string>,
  passes: (node: Node) => boolean = () => true,
): ReadonlySet<string> {
  const reached = new Set(sources)
  for (const node of nodes) {
    if (!passes(node) || !readsOf(node).some(name => reached.has(name))) continue
    for (const name of node.outputs) if (name !== '') reached.add(name)
  }
  return reached
}
