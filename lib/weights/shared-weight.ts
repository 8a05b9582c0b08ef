// shared-weight.ts: a frozen weight that is kept once, for all graphs and plans that read it.
import { inRows } from './panels.js'
import type { Weight, WeightFormat } from './weight.js'

/** The numbers of a weight, kept once in the layout that somebody asked for last. */
export class SharedWeight {
  #kept: Weight

  /** A weight that is kept as `weight` at first. */
  constructor(weight: Weight) {
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

  /** The weight in the layout in which it is kept. */
  get kept(): Weight {
    return this.#kept
  }

  /** The weight in rows: a copy where it is kept in panels. */
  inRows(): Weight {
    return inRows(this.#kept)
  }

  /** Keeps `weight`, the same numbers in another layout, from now on. Arrays that were given away stay as they are. */
  keepAs(weight: Weight): void {
    this.#kept = weight
  }
}
