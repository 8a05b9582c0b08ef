// held-weight.ts: a frozen weight where the kernels of a layer read it.
import type { HeldArray, Kernels, StoredWeight } from '../runtime/kernels.js'

/** A stored weight and the memory it lies in. */
export interface HeldWeight {
  readonly weight: StoredWeight
  /** Frees the memory. */
  dispose(): void
}

/** Puts `weight` where `kernels` read it without a copy in each call. */
export async function holdWeight(kernels: Kernels, weight: StoredWeight): Promise<HeldWeight> {
  const held: HeldArray[] = []
  const dispose = (): void => {
    for (const array of held) array.dispose()
  }
  const hold = async <A extends StoredWeight['data']>(array: A): Promise<A> => {
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

/** Frees weights that a layer no longer needs, but never under an operation that was started before. */
export class Retirement {
  #pending = 0
  #retired: HeldWeight[] = []

  /** Runs `operation`; what is retired meanwhile is freed after it. */
  async during<T>(operation: () => Promise<T>): Promise<T> {
    this.#pending++
    try {
      return await operation()
    } finally {
      this.#pending--
      this.retire(null)
    }
  }

  /** Frees `weight`, if there is one, as soon as nothing is pending. */
  retire(weight: HeldWeight | null): void {
    if (weight) this.#retired.push(weight)
    if (this.#pending === 0) for (const retired of this.#retired.splice(0)) retired.dispose()
  }
}
