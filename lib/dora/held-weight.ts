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
