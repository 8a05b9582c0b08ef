// operands.js: operands of rows in memory that the kernels of the device read without a copy.

/** @import { HeldArray, HoldableArray, Kernels, Weight } from 'dgx-spark/kernels' */

/** On a GPU, a row's weights rotate over this many bytes, more than any L2 cache. */
const coldBytes = { cuda: 192 * 2 ** 20, cpu: 0, js: 0 }

/** An array that kernels of the CPU use where it is. @template {HoldableArray} A @param {Kernels} kernels @param {A} array */
export const held = async (kernels, array) => (await kernels.hold(array)).array

export class Operands {
  /** @type {HeldArray[]} */
  #held = []
  #kernels

  /** @param {Kernels} kernels */
  constructor(kernels) {
    this.#kernels = kernels
  }

  /** The array, or a copy where the device reads it. @template {HoldableArray} A @param {A} array @returns {Promise<A>} */
  async put(array) {
    const held = await this.#kernels.hold(array)
    this.#held.push(held)
    return held.array
  }

  /**
   * Copies of a weight in rotation, enough of them that each is evicted before it is used again.
   * @param {Weight} weight @returns {Promise<() => Weight>}
   */
  async rotate(weight) {
    const count = Math.max(1, Math.ceil(coldBytes[this.#kernels.backend] / weight.data.byteLength))
    /** @type {Weight[]} */
    const copies = []
    while (copies.length < count) {
      copies.push(
        /** @type {Weight} */ ({
          ...weight,
          data: await this.put(weight.data),
          ...('rowScale' in weight && { rowScale: await this.put(weight.rowScale) }),
          ...('blockScale' in weight && { blockScale: await this.put(weight.blockScale) }),
        }),
      )
    }
    let next = 0
    return () => copies[next++ % count] ?? weight
  }

  dispose() {
    for (const held of this.#held) held.dispose()
    this.#held = []
  }
}
