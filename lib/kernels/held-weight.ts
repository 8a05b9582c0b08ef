// held-weight.ts: residency of frozen weights: in the memory of a GPU, or packed for the CPU.
import { argumentError } from '../core/checks.js'
import { expectWeight } from '../weights/encode.js'
import { packedSizes } from '../weights/packed.js'
import { allocate } from './aligned.js'
import type { HeldArray, Kernels, Weight } from './kernels.js'

/** A stored weight and the memory it lies in. */
export interface HeldWeight {
  /** The weight with arrays in that memory. */
  readonly weight: Weight
  /** Frees the memory. */
  dispose(): void
}

/**
 * Puts `weight` where `kernels` read it without a copy in each call: into the memory of a GPU, or into panels for the
 * CPU, whose products need no transposition then. The arrays given are free as soon as the call returns, but for those of
 * a packed weight on the CPU, which are held.
 * @throws SparkError ERR_OUT_OF_MEMORY
 */
export async function holdWeight(kernels: Kernels, weight: Weight): Promise<HeldWeight> {
  if (typeof kernels?.hold !== 'function') throw argumentError('kernels', 'what openKernels gives', kernels)
  expectWeight('weight', weight)
  if (kernels.backend === 'cpu' && !weight.packed)
    return { weight: await packed(kernels, weight), dispose() {} }
  const held: HeldArray[] = []
  const dispose = (): void => {
    for (const array of held) array.dispose()
  }
  const hold = async <A extends Weight['data']>(array: A): Promise<A> => {
    const copy = await kernels.hold(array)
    held.push(copy)
    return copy.array
  }
  try {
    const { data, rowScale, blockScale } = weight
    const arrays = {
      data: await hold(data),
      ...(rowScale && { rowScale: await hold(rowScale) }),
      ...(blockScale && { blockScale: await hold(blockScale) }),
    }
    return { weight: { ...weight, ...arrays }, dispose }
  } catch (error) {
    dispose()
    throw error
  }
}

type ArrayOnBuffer = new (buffer: ArrayBuffer, offset: number, length: number) => Weight['data']

async function packed(kernels: Kernels, weight: Weight): Promise<Weight> {
  const sizes = packedSizes(weight)
  const { buffer, offset } = allocate(sizes.data * weight.data.BYTES_PER_ELEMENT, kernels)
  const arrays = {
    data: new (weight.data.constructor as ArrayOnBuffer)(buffer, offset, sizes.data),
    ...(weight.rowScale && { rowScale: weight.rowScale.slice() }),
    ...(weight.blockScale && { blockScale: new Uint8Array(sizes.blockScale) }),
  }
  for (const array of Object.values(arrays)) kernels.hold(array)
  await kernels.run('packWeight', { weight, data: arrays.data, blockScale: arrays.blockScale })
  return { ...weight, ...arrays, packed: true }
}

/** Deferred release of the weights that a layer no longer needs: never under an operation that was started before. */
export class DeferredRelease {
  #pending = 0
  #waiting: HeldWeight[] = []

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
  release(weight: HeldWeight | null): void {
    if (weight) this.#waiting.push(weight)
    if (this.#pending === 0) for (const waiting of this.#waiting.splice(0)) waiting.dispose()
  }
}
