// shared-weight.ts: a frozen weight that is kept once, for all graphs and plans that read it.
import { isLazy, type LazyWeight, readWeight } from './lazy-weight.js'
import { inRows } from './panels.js'
import { releaseWeight, type Weight, type WeightFormat } from './weight.js'

/** A weight in the memory of a device, for as long as somebody shares it. */
export class DeviceCopy {
  readonly #made: Promise<Weight>
  readonly #forget: () => void
  #users = 0
  #weight: Weight | undefined

  /** @param forget - called when nobody shares it any more */
  constructor(made: Promise<Weight>, forget: () => void) {
    this.#made = made
    this.#forget = forget
  }

  /** The weight, whose arrays have no elements for JavaScript; undefined until it is there. */
  get weight(): Weight | undefined {
    return this.#weight
  }

  /** Keeps it until the result is disposed of. */
  share(): Disposable {
    this.#users++
    let used = true
    return {
      [Symbol.dispose]: () => {
        if (used && --this.#users === 0) {
          this.#forget()
          if (this.#weight) releaseWeight(this.#weight)
        }
        used = false
      },
    }
  }

  /**
   * {@link DeviceCopy.share}, when it is there.
   * @throws whatever makes it does
   */
  async ready(): Promise<Disposable> {
    const share = this.share()
    try {
      this.#weight = await this.#made
      return share
    } catch (error) {
      share[Symbol.dispose]()
      throw error
    }
  }
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

  /** The weight in the memory of a device; undefined where it is not there. */
  on(device: number | undefined): DeviceCopy | undefined {
    return device === undefined ? undefined : this.#copies.get(device)
  }

  /**
   * Has the weight in the memory of a device, too, until everybody who asked for that is done with it.
   * @param copy - puts it there
   * @returns what says that the caller is done with it
   * @throws whatever `copy` does
   */
  copyTo(device: number, copy: () => Promise<Weight>): Promise<Disposable> {
    const known = this.#copies.get(device) ?? new DeviceCopy(copy(), () => this.#copies.delete(device))
    this.#copies.set(device, known)
    return known.ready()
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
