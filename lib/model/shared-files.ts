// shared-files.ts: graphs of files that several models of a process read, so that their weights are in memory once.
import type { Graph } from '../graph/graph.js'
import { fileIdentity } from '../io/content-hash.js'

/** By what a file system says of the file. */
const graphs = new Map<string, WeakRef<Graph>>()

const forgotten = new FinalizationRegistry<string>(key => {
  if (!graphs.get(key)?.deref()) graphs.delete(key)
})

/**
 * The graph of a file: the one that a model has already, or else what `read` gives.
 * @param file - its path
 */
export async function sharedGraph(file: string, read: () => Promise<Graph>): Promise<Graph> {
  const key = await fileIdentity(file)
  const known = key && graphs.get(key)?.deref()
  if (known) return known
  const graph = await read()
  // Files beside it may change without it.
  const isWhole = [...graph.initializers.values()].every(({ isBeside }) => !isBeside)
  if (key && isWhole) {
    graphs.set(key, new WeakRef(graph))
    forgotten.register(graph, key)
  }
  return graph
}
