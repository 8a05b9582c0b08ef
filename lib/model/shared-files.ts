// shared-files.ts: graphs of files that several models of a process read, so that their weights are in memory once.
import { stat } from 'node:fs/promises'
import type { Graph } from '../graph/graph.js'

/** By what a file system says of the file. */
const graphs = new Map<string, WeakRef<Graph>>()

const forgotten = new FinalizationRegistry<string>(key => {
  if (!graphs.get(key)?.deref()) graphs.delete(key)
})

/** Milliseconds in which a file may change without another time of change. */
const clockTick = 2000

/**
 * The graph of a file: the one that a model has already, or else what `read` gives.
 * @param file - its path
 */
export async function sharedGraph(file: string, read: () => Promise<Graph>): Promise<Graph> {
  const key = await identityOf(file)
  const known = key && graphs.get(key)?.deref()
  if (known) return known
  const graph = await read()
  // Files beside it may change without it.
  const isWhole = [...graph.initializers.values()].every(({ inMemory }) => inMemory)
  if (key && isWhole) {
    graphs.set(key, new WeakRef(graph))
    forgotten.register(graph, key)
  }
  return graph
}

/** What changes with a file; undefined for one that has changed just now, and where there is none. */
async function identityOf(file: string): Promise<string | undefined> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs, ctimeMs } = await stat(file, { bigint: true })
    if (Date.now() - Number(ctimeMs) < clockTick) return undefined
    return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`
  } catch {
    return undefined // reading it says why
  }
}
