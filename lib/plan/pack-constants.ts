// pack-constants.ts: the weights of precision modes in the layout that kernels of the CPU stream.
import type { Pacer } from '../core/paced.js'
import { consumersOfPaced } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { carryFacts } from '../graph/kept-facts.js'
import { storedConstant } from '../graph/rewrites/round-weights.js'
import { holdWeight } from '../kernels/held-weight.js'
import type { Kernels } from '../kernels/kernels.js'

/**
 * The graph with the weights of precision modes in the layout that kernels of the CPU stream. Filters of bf16 stay rows: what a
 * convolution reads is up to its plan.
 */
export async function packConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<Graph> {
  if (![...graph.initializers.values()].some(({ stored }) => stored)) return graph
  const readers = await pacer.do(consumersOfPaced(graph))
  const initializers = new Map(graph.initializers)
  for (const [name, { shape, stored }] of graph.initializers) {
    if (!stored || stored.weight.packed) continue
    if (stored.weight.dtype === 'bf16' && readers.get(name)?.every(({ op }) => op === 'Conv')) continue
    await pacer.pause()
    const { weight } = await holdWeight(kernels, stored.weight)
    initializers.set(name, storedConstant(shape, { ...stored, weight }))
  }
  return carryFacts(graph, { ...graph, initializers })
}
