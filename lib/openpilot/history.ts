// history.ts: what a recurrent driving model is shown again: the rows of the last frames.

/** A row. */
type Row = Float32Array | Uint8Array

/** The last rows of one size; those before the first are zeros. */
export class History<R extends Row = Float32Array> {
  /** Rows that are remembered. */
  readonly length: number
  /** One more than is remembered, so that the last push can be taken back. */
  readonly #rows: readonly R[]
  #newest = 0

  /** @param make - a row of zeros */
  constructor(length: number, make: () => R) {
    this.length = length
    this.#rows = Array.from({ length: length + 1 }, make)
  }

  /** Remembers a copy of a row. */
  push(row: ArrayLike<number>): void {
    this.#newest = (this.#newest + 1) % this.#rows.length
    this.row(0).set(row)
  }

  /** Takes the last push back, once. */
  undo(): void {
    this.#newest = (this.#newest + this.length) % this.#rows.length
  }

  /** The row of `age` pushes ago; 0 is the newest. Not a copy. */
  row(age: number): R {
    return this.#rows[(this.#newest - age + this.#rows.length) % this.#rows.length]!
  }

  /** Forgets everything. */
  clear(): void {
    for (const row of this.#rows) row.fill(0)
  }

  /** Rows of these ages, one behind another. */
  gather(ages: readonly number[]): R {
    const size = this.row(0).length
    const all = this.row(0).constructor as new (length: number) => R
    const result = new all(ages.length * size)
    ages.forEach((age, i) => {
      result.set(this.row(age), i * size)
    })
    return result
  }
}

/** `count` ages whose distance is `step`, the oldest first; the last is `newest`. */
export const everyNth = (count: number, step: number, newest = 0): number[] =>
  Array.from({ length: count }, (_, i) => newest + (count - 1 - i) * step)

/** The largest numbers of each column in groups of `step` rows, the oldest group first. */
export function maxPooled(history: History, step: number): Float32Array {
  const size = history.row(0).length
  const groups = history.length / step
  const result = new Float32Array(groups * size).fill(Number.NEGATIVE_INFINITY)
  for (let age = 0; age < history.length; age++) {
    const row = history.row(age)
    const start = (groups - 1 - Math.floor(age / step)) * size
    for (let i = 0; i < size; i++) result[start + i] = Math.max(result[start + i]!, row[i]!)
  }
  return result
}
