// cold.js: weights that are evicted from every cache between uses.
import { holdWeight, releaseWeight, weightBytes } from 'dgx-spark/kernels'

/** @import { Kernels, Weight } from 'dgx-spark/kernels' */

/** Total size of the copies of a weight: more than the last-level cache of a CPU or the L2 of a GPU. */
const coldBytes = { cuda: 192 * 2 ** 20, cpu: 1.1 * 2 ** 30, js: 0 }

/**
 * As many copies of a weight as are cold, where and as a layer holds it.
 * @param {Kernels} kernels @param {Weight} weight
 * @returns {Promise<{ next: () => Weight, dispose(): void }>} `next` gives them in turn
 */
export async function coldWeight(kernels, weight) {
  const count = Math.max(1, Math.ceil(coldBytes[kernels.backend] / weightBytes(weight)))
  /** @type {Weight[]} */
  const copies = []
  while (copies.length < count) copies.push(await holdWeight(kernels, weight))
  let turn = 0
  return {
    next: () => copies[turn++ % count] ?? weight,
    dispose() {
      for (const copy of copies) releaseWeight(copy)
    },
  }
}
