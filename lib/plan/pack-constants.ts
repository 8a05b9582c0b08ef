// pack-constants.ts: the weights of a graph in memory, in the layout that kernels of the CPU stream.
import type { Pacer } from '../core/paced.js'
import { consumersOfPaced } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { holdWeight, PanelLoader } from '../kernels/hold-weight.js'
import type { Kernels } from '../kernels/kernels.js'
import type { SharedWeight } from '../weights/shared-weight.js'

/**
 * Keeps the weights of a graph in panels, and reads those that are still in files. Tables of which rows are gathered stay in rows, as
 * do filters of bf16: what a convolution reads is up to its plan.
 * @param kernels - of the CPU
 */
export async function packConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<void> {
  if (![...graph.initializers.values()].some(({ weight }) => weight)) return
  const loader = new PanelLoader(kernels)
  const readers = await pacer.do(consumersOfPaced(graph))
  for (const [name, { weight }] of graph.initializers) {
    const shared = weight?.shared
    if (!shared || (!shared.lazy && shared.kept.layout === 'panels')) continue
    const ops = readers.get(name)?.map(({ op }) => op) ?? []
    const isTable = ops.every(op => op === 'Gather')
    await pacer.pause()
    if (isTable || (shared.format === 'bf16' && ops.every(op => op === 'Conv'))) await inMemory(shared)
    else shared.keepAs(shared.lazy ? await loader.load(shared.lazy) : await holdWeight(kernels, shared.kept))
  }
}

/** Reads the weights of a graph that are still in files. */
export async function loadConstants({ initializers }: Graph, pacer: Pacer): Promise<void> {
  for (const { weight } of initializers.values()) {
    await pacer.pause()
    if (weight) await inMemory(weight.shared)
  }
}

async function inMemory(shared: SharedWeight): Promise<void> {
  if (shared.lazy) shared.keepAs(await shared.lazy.load())
}
