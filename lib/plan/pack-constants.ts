// pack-constants.ts: the weights of a graph in memory: in the layout that kernels of the CPU stream, or where a GPU reads them.
import type { Pacer } from '../core/paced.js'
import { consumersOfPaced } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { expectFit, expectFreeBytes } from '../hardware/memory.js'
import { loadToDevice } from '../kernels/device-memory.js'
import { holdWeight, PanelLoader } from '../kernels/hold-weight.js'
import type { Kernels } from '../kernels/kernels.js'
import { storedBytes } from '../weights/lazy-weight.js'

/**
 * Keeps the weights of a graph in panels, and reads those that are still in files. Tables of which rows are gathered stay in rows, as
 * do filters of bf16: what a convolution reads is up to its plan.
 * @param kernels - of the CPU
 */
export async function packConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<void> {
  if (![...graph.initializers.values()].some(({ weight }) => weight)) return
  expectSpace(graph, kernels)
  const loader = new PanelLoader(kernels)
  const readers = await pacer.do(consumersOfPaced(graph))
  for (const [name, { weight }] of graph.initializers) {
    const shared = weight?.shared
    if (!shared || (!shared.lazy && shared.kept.layout === 'panels')) continue
    const ops = readers.get(name)?.map(({ op }) => op) ?? []
    const isTable = ops.every(op => op === 'Gather')
    await pacer.pause()
    const isInRows = isTable || (shared.format === 'bf16' && ops.every(op => op === 'Conv'))
    if (isInRows && shared.lazy) shared.keepAs(await shared.lazy.load())
    else if (!isInRows)
      shared.keepAs(shared.lazy ? await loader.load(shared.lazy) : await holdWeight(kernels, shared.kept))
  }
}

/** From this part of the fastest memory on, a copy of weights in that is not worth its bytes. */
const fastEnough = 0.95

/** Part of the free memory that a copy of weights may take. */
const spaceForCopies = 0.8

/**
 * Reads the weights of a graph that are still in files: into the memory of a device that has any, so that nobody else need have
 * them, else into that of JavaScript. A device gets copies of what is in memory when a plan first runs. One that computes in the
 * memory of the machine gets none where it reads what JavaScript sees as fast, or where memory has no space for them: then
 * they move to where both read them.
 * @param kernels - of a GPU, or in TypeScript
 * @returns what frees the memory of the device
 * @throws SparkError ERR_OUT_OF_MEMORY, with numbers, for weights of which there is more than free memory
 */
export async function loadConstants(graph: Graph, kernels: Kernels, pacer: Pacer): Promise<Disposable> {
  const { deviceMemory, heldSpeed } = kernels
  const weights = new Set([...graph.initializers.values()].flatMap(({ weight }) => weight?.shared ?? []))
  expectSpace(graph, kernels)
  const inMemory = [...weights].filter(({ lazy }) => !lazy)
  const isKeptOnce =
    heldSpeed !== undefined &&
    (heldSpeed >= fastEnough || sumOf(inMemory, storedBytes) > spaceForCopies * kernels.freeBytes())
  const onDevice: Disposable[] = []
  const owner = {
    [Symbol.dispose]() {
      for (const each of onDevice.splice(0)) each[Symbol.dispose]()
    },
  }
  try {
    for (const shared of weights) {
      await pacer.pause()
      const { lazy } = shared
      if (lazy && deviceMemory)
        onDevice.push(await shared.copyTo(deviceMemory.device, () => loadToDevice(deviceMemory, lazy)))
      else if (lazy) shared.keepAs(await lazy.load())
      else if (isKeptOnce && !shared.kept.owner && shared.kept.layout !== 'panels')
        shared.keepAs(await holdWeight(kernels, shared.kept))
    }
    return owner
  } catch (error) {
    owner[Symbol.dispose]()
    throw error
  }
}

/** Refuses weights and constants in files that need more memory than is free where they go. */
function expectSpace({ initializers }: Graph, { backend, deviceMemory, freeBytes }: Kernels): void {
  const constants = [...initializers.values()]
  const lazy = new Set(constants.flatMap(({ weight }) => weight?.shared.lazy ?? []))
  const stored = new Set(constants.filter(({ weight, load }) => !weight && load))
  const bytes = sumOf(lazy, storedBytes) + sumOf(stored, ({ byteLength }) => byteLength)
  const what = 'the weights of the model take'
  if (deviceMemory && !deviceMemory.isShared) expectFit(what, bytes, freeBytes())
  else expectFreeBytes(what, bytes, backend === 'cuda' ? freeBytes() : undefined)
}

function sumOf<T>(items: Iterable<T>, bytesOf: (item: T) => number): number {
  let sum = 0
  for (const item of items) sum += bytesOf(item)
  return sum
}
