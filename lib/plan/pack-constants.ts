// pack-constants.ts: the weights of a graph in memory: in the layout that kernels of the CPU stream, or where a GPU reads them.
import type { Pacer } from '../core/paced.js'
import { consumersOfPaced } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { expectFreeBytes } from '../hardware/memory.js'
import { holdWeight, loadHeld, PanelLoader } from '../kernels/hold-weight.js'
import type { Kernels } from '../kernels/kernels.js'
import { storedBytes } from '../weights/lazy-weight.js'
import type { SharedWeight } from '../weights/shared-weight.js'

/**
 * Keeps the weights of a graph in panels, and reads those that are still in files. Tables of which rows are gathered stay in rows, as
 * do filters of bf16: what a convolution reads is up to its plan.
 * @param kernels - of the CPU
 */
export async function packConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<void> {
  if (![...graph.initializers.values()].some(({ weight }) => weight)) return
  expectRoom(graph)
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

/** From this part of the fastest memory on, a copy of weights in that is not worth its bytes. */
const fastEnough = 0.95

/** Part of the free memory that weights and a copy of them may take. */
const roomForCopies = 0.8

/**
 * Reads the weights of a graph that are still in files. A GPU gets copies of them when a plan first runs. One that computes in the
 * memory of the machine gets none where it reads what JavaScript sees as fast, or memory has no room for both: then they are kept
 * once, where both read them.
 * @param kernels - of a GPU, or in TypeScript
 * @throws SparkError ERR_OUT_OF_MEMORY, with numbers, for weights of which there is more than free memory
 */
export async function loadConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<void> {
  const { heldSpeed } = kernels
  const free = heldSpeed === undefined ? undefined : kernels.freeBytes()
  const bytes = expectRoom(graph, free)
  const isKeptOnce = free !== undefined && (heldSpeed! >= fastEnough || 2 * bytes > roomForCopies * free)
  for (const { weight } of graph.initializers.values()) {
    await pacer.pause()
    if (!weight) continue
    const { shared } = weight
    if (!isKeptOnce) await inMemory(shared)
    else if (shared.lazy) shared.keepAs(await loadHeld(kernels, shared.lazy))
    else if (!shared.kept.owner && shared.kept.layout !== 'panels')
      shared.keepAs(await holdWeight(kernels, shared.kept))
  }
}

/** Bytes of the weights that are still in files; refuses what is more than free memory. */
function expectRoom({ initializers }: Graph, most?: number): number {
  const lazy = new Set([...initializers.values()].map(({ weight }) => weight?.shared.lazy))
  let bytes = 0
  for (const weight of lazy) if (weight) bytes += storedBytes(weight)
  expectFreeBytes('the weights of the model take', bytes, most)
  return bytes
}

async function inMemory(shared: SharedWeight): Promise<void> {
  if (shared.lazy) shared.keepAs(await shared.lazy.load())
}
