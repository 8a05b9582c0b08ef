// pack-constants.ts: the weights of precision modes in the layout that kernels of the CPU stream.
import type { Pacer } from '../core/paced.js'
import { consumersOfPaced } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { holdWeight } from '../kernels/hold-weight.js'
import type { Kernels } from '../kernels/kernels.js'

/**
 * Keeps the weights of the precision modes of a graph in panels. Tables of which rows are gathered stay in rows, as do
 * filters of bf16: what a convolution reads is up to its plan.
 * @param kernels - of the CPU
 */
export async function packConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<void> {
  if (![...graph.initializers.values()].some(({ weight }) => weight)) return
  const readers = await pacer.do(consumersOfPaced(graph))
  for (const [name, { weight }] of graph.initializers) {
    const shared = weight?.shared
    if (!shared || shared.kept.layout === 'panels') continue
    const ops = readers.get(name)?.map(({ op }) => op) ?? []
    const isTable = ops.every(op => op === 'Gather')
    if (isTable || (shared.format === 'bf16' && ops.every(op => op === 'Conv'))) continue
    await pacer.pause()
    shared.keepAs(await holdWeight(kernels, shared.kept))
  }
}
