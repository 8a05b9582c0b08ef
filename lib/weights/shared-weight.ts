// shared-weight.ts: a frozen weight that is kept once, for all graphs and plans that read it.
import { isLazy, type LazyWeight, readWeight } from './lazy-weight.js'
import { inRows } from './panels.js'
import { releaseWeight, type Weight, type WeightFormat } from './weight.js'

/** A weight in the memory of a device. */
interface DeviceCopy {
  users: number
  readonly made: Promise<Weight>
  /** Undefined until it is made. */
  weight: Weight | undefined
}

/** The numbers of a weight, kept once in the layout that somebody asked for last. */
export class SharedWeight {
  #kept: Weight | LazyWeight
  /** By device. */
  readonly #copies = new Map<number, DeviceCopy>()

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

  /**
   * The weight in the layout in which it is kept. One in a file is read first, and kept in memory from then on unless a device
   * has it.
   */
  get kept(): Weight {
    const weight = readWeight(this.#kept)
    if (this.#copies.size === 0) this.#kept = weight
    return weight
  }

  /** The weight in the memory of a device, whose arrays have no elements for JavaScript; undefined where it is not there. */
  on(device: number | undefined): Weight | undefined {
    return device === undefined ? undefined : this.#copies.get(device)?.weight
  }

  /**
   * Has the weight in the memory of a device, too, until everybody who asked for that is done with it.
   * @param copy - puts it there
   * @returns what says that the caller is done with it
   * @throws whatever `copy` does
   */
  async copyTo(device: number, copy: () => Promise<Weight>): Promise<Disposable> {
    const known = this.#copies.get(device) ?? { users: 0, made: copy(), weight: undefined }
    this.#copies.set(device, known)
    known.users++
    let used = true
    const done = {
      [Symbol.dispose]: () => {
        if (!used) return
        used = false
        if (--known.users > 0) return
        this.#copies.delete(device)
        if (known.weight) releaseWeight(known.weight)
      },
    }
    try {
      known.weight = await known.made
      return done
    } catch (error) {
      done[Symbol.dispose]()
      throw error
    }
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
