// pack-constants.ts: the weights of precision modes in the layout that kernels of the CPU stream.
import type { Pacer } from '../core/paced.js'
import { consumersOfPaced } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { holdWeight } from '../kernels/hold-weight.js'
import type { Kernels } from '../kernels/kernels.js'

/**
 * Keeps the weights of the precision modes of a graph in panels. Filters of bf16 stay in rows: what a convolution reads is
 * up to its plan.
 * @param kernels - of the CPU
 */
export async function packConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<void> {
  if (![...graph.initializers.values()].some(({ weight }) => weight)) return
  const readers = await pacer.do(consumersOfPaced(graph))
  for (const [name, { weight }] of graph.initializers) {
    const shared = weight?.shared
    if (!shared || shared.kept.layout === 'panels') continue
    if (shared.format === 'bf16' && readers.get(name)?.every(({ op }) => op === 'Conv')) continue
    await pacer.pause()
    shared.keepAs(await holdWeight(kernels, shared.kept))
  }
}
