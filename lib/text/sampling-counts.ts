// sampling-counts.ts: how often tokens are in a text, in arrays that native code reads.

/** Counts tokens. */
export class TokenCounts {
  readonly #index = new Map<number, number>()
  #ids = new Int32Array(16)
  #counts = new Int32Array(16)

  /** Distinct tokens. */
  get size(): number {
    return this.#index.size
  }

  /** The distinct tokens in the order in which they came: the first {@link TokenCounts.size} elements. */
  get ids(): Int32Array {
    return this.#ids
  }

  /** How often each of {@link TokenCounts.ids} came. */
  get counts(): Int32Array {
    return this.#counts
  }

  /** Counts one more. */
  add(id: number): void {
    const known = this.#index.get(id)
    const at = known ?? this.size
    if (known === undefined) {
      if (at === this.#ids.length) this.#grow()
      this.#index.set(id, at)
      this.#ids[at] = id
    }
    this.#counts[at]!++
  }

  #grow(): void {
    const [ids, counts] = [this.#ids, this.#counts]
    this.#ids = new Int32Array(2 * ids.length)
    this.#counts = new Int32Array(2 * ids.length)
    this.#ids.set(ids)
    this.#counts.set(counts)
  }

  /** Tokens and how often each came. */
  *entries(): Generator<[id: number, count: number]> {
    for (let i = 0; i < this.size; i++) yield [this.#ids[i]!, this.#counts[i]!]
  }
}
