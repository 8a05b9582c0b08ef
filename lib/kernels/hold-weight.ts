// hold-weight.ts: residency of frozen weights: in the memory of a GPU, or in panels for the CPU.
import { argumentError } from '../core/checks.js'
import { expectWeight } from '../weights/encode.js'
import { panelSizes } from '../weights/panels.js'
import { arraysOf, releaseWeight, type Weight } from '../weights/weight.js'
import { allocate } from './aligned.js'
import type { HeldArray, Kernels } from './kernels.js'

/**
 * Puts `weight` where `kernels` read it without a copy in each call: into the memory of a GPU, or into panels for the
 * CPU, whose products need no transposition then. The arrays given are free as soon as the call returns, but for those of
 * a weight in panels on the CPU, which are held.
 * @returns a weight that may own its memory: free it with {@link releaseWeight}; `weight` itself where it lies well
 * @throws SparkError ERR_OUT_OF_MEMORY
 */
export async function holdWeight(kernels: Kernels, weight: Weight): Promise<Weight> {
  if (typeof kernels?.hold !== 'function') throw argumentError('kernels', 'what openKernels gives', kernels)
  expectWeight('weight', weight)
  if (kernels.backend === 'cpu' && weight.layout !== 'panels') return inPanels(kernels, weight)
  const held: HeldArray[] = []
  const owner = {
    [Symbol.dispose]() {
      for (const array of held.splice(0)) array.dispose()
    },
  }
  try {
    const given = arraysOf(weight)
    for (const [, array] of given) held.push(await kernels.hold(array))
    if (held.every(({ array }, i) => array === given[i]![1])) return weight
    const arrays = given.map(([name], i) => [name, held[i]!.array])
    return { ...weight, ...Object.fromEntries(arrays), owner }
  } catch (error) {
    owner[Symbol.dispose]()
    throw error
  }
}

type ArrayOnBuffer = new (buffer: ArrayBuffer, offset: number, length: number) => Weight['data']

async function inPanels(kernels: Kernels, weight: Weight): Promise<Weight> {
  const sizes = panelSizes(weight)
  const { buffer, offset } = allocate(sizes.data * weight.data.BYTES_PER_ELEMENT, kernels)
  const arrays = {
    data: new (weight.data.constructor as ArrayOnBuffer)(buffer, offset, sizes.data),
    ...('rowScale' in weight && { rowScale: weight.rowScale.slice() }),
    ...('blockScale' in weight && { blockScale: new Uint8Array(sizes.blockScale) }),
  }
  for (const array of Object.values(arrays)) kernels.hold(array)
  const { data, blockScale } = arrays
  await kernels.run('packWeight', { weight, data, blockScale })
  return { ...weight, ...arrays, layout: 'panels' } as Weight
}

/** Deferred release of the weights that a layer no longer needs: never under an operation that was started before. */
export class DeferredRelease {
  #pending = 0
  #waiting: Weight[] = []

  /** Runs `operation`; what is released meanwhile is freed after it. */
  async during<T>(operation: () => Promise<T>): Promise<T> {
    this.#pending++
    try {
      return await operation()
    } finally {
      this.#pending--
      this.release(null)
    }
  }

  /** Frees `weight`, if there is one, as soon as nothing is pending. */
  release(weight: Weight | null): void {
    if (weight) this.#waiting.push(weight)
    if (this.#pending === 0) for (const waiting of this.#waiting.splice(0)) releaseWeight(waiting)
  }
}
