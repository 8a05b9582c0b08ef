// shared-weight.ts: a frozen weight that is kept once, for all graphs and plans that read it.
import { isLazy, type LazyWeight, readWeight } from './lazy-weight.js'
import { inRows } from './panels.js'
import type { Weight, WeightFormat } from './weight.js'

/** The numbers of a weight, kept once in the layout that somebody asked for last. */
export class SharedWeight {
  #kept: Weight | LazyWeight

  /** A weight that is kept as `weight` at first, in its file until somebody reads it if it is lazy. */
  constructor(weight: Weight | LazyWeight) {
    this.#kept = weight
  }

  /** Format of the elements. */
  get format(): WeightFormat {
    return this.#kept.format
  }

  /** Out features. */
  get rows(): number {
    return this.#kept.rows
  }

  /** In features. */
  get cols(): number {
    return this.#kept.cols
  }

  /** The weight as long as its elements are only in a file. */
  get lazy(): LazyWeight | undefined {
    return isLazy(this.#kept) ? this.#kept : undefined
  }

  /** The weight in the layout in which it is kept. One in a file is read first, and kept in memory from then on. */
  get kept(): Weight {
    const weight = readWeight(this.#kept)
    this.#kept = weight
    return weight
  }

  /** The weight in rows: a copy where it is kept in panels. */
  inRows(): Weight {
    return inRows(this.kept)
  }

  /** Keeps `weight`, the same numbers in another layout, from now on. Arrays that were given away stay as they are. */
  keepAs(weight: Weight): void {
    this.#kept = weight
  }
}
