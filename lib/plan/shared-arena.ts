// shared-arena.ts: memory for plans that never run at the same time.
import { type Allocation, allocate } from '../kernels/aligned.js'
import type { Kernels } from '../kernels/kernels.js'

/** Memory that grows by doubling; plans that have the one before keep it. */
export class SharedArena {
  #memory: Allocation = { buffer: new ArrayBuffer(0), offset: 0 }
  #bytes = 0

  /**
   * At least so many bytes, which the plans before may have, too.
   * @throws RangeError when the process cannot have them
   */
  allocate(bytes: number, kernels: Pick<Kernels, 'padding'>): Allocation {
    if (bytes <= this.#bytes) return this.#memory
    const grown = Math.min(2 * this.#bytes, largestSpare)
    this.#bytes = Math.max(bytes, grown)
    this.#memory = allocate(this.#bytes, kernels)
    return this.#memory
  }

  /** Lets the memory go; plans that have it keep it. */
  trim(): void {
    this.#memory = { buffer: new ArrayBuffer(0), offset: 0 }
    this.#bytes = 0
  }

  /** Whether memory that it gave is so large that it is better let go, as later plans have more. */
  hasOutgrown(memory: Allocation): boolean {
    return this.#bytes > largestSpare && memory.buffer !== this.#memory.buffer
  }
}

/** Bytes up to which memory is doubled: of larger arenas a half that nobody uses costs too much. */
const largestSpare = 2 ** 26
