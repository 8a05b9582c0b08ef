// embedded-kv.ts: a bucket of an embedded control plane.
import { expectInteger } from '../../core/checks.js'
import { Arrivals } from './arrivals.js'
import type { BucketOptions, JsonValue, KeyValue, KvChange, KvEntry } from './control-plane.js'
import { closedError, conflict, expectKey, payloadText } from './names.js'
import type { Store, Stored, Transaction } from './store.js'

/** A bucket, by the name that it has in the store. */
export class EmbeddedBucket implements KeyValue {
  readonly options: BucketOptions
  readonly #name: string
  readonly #store: Store
  readonly #closing: AbortSignal
  readonly #watchers = new Set<Arrivals<KvChange>>()
  #sweep: NodeJS.Timeout | undefined

  constructor(name: string, options: BucketOptions, store: Store, closing: AbortSignal) {
    this.#name = name
    this.options = options
    this.#store = store
    this.#closing = closing
    if (options.ttlMs === undefined) return
    store.state.ttls.set(name, options.ttlMs)
    this.#sweepLater()
  }

  async get(key: string): Promise<KvEntry | undefined> {
    expectKey(key)
    this.#expectOpen()
    const stored = this.#store.state.get(this.#name, key)
    return stored && { key, value: JSON.parse(stored.text), revision: stored.revision }
  }

  async create(key: string, value: JsonValue): Promise<number> {
    return this.#put(key, value, found => {
      if (found) throw conflict(`${this.#name} has the key ${key} already, at revision ${found.revision}`)
    })
  }

  async update(key: string, value: JsonValue, revision: number): Promise<number> {
    expectInteger('revision', revision, 1)
    return this.#put(key, value, found => this.#expectRevision(key, found, revision))
  }

  async put(key: string, value: JsonValue): Promise<number> {
    return this.#put(key, value, () => {})
  }

  async delete(key: string, revision?: number): Promise<void> {
    expectKey(key)
    if (revision !== undefined) expectInteger('revision', revision, 1)
    await this.#decide(transaction => {
      const found = transaction.get(this.#name, key)
      if (revision !== undefined) this.#expectRevision(key, found, revision)
      if (found) transaction.delete(this.#name, key)
    })
  }

  async keys(): Promise<string[]> {
    this.#expectOpen()
    return [...this.#live()].map(([key]) => key)
  }

  async *watch(signal: AbortSignal): AsyncIterable<KvChange> {
    this.#expectOpen()
    const changes = new Arrivals<KvChange>([signal, this.#closing], { keyOf: ({ key }) => key })
    for (const [key, { text, revision }] of this.#live())
      changes.push({ key, value: JSON.parse(text), revision })
    this.#watchers.add(changes)
    try {
      yield* changes
    } finally {
      this.#watchers.delete(changes)
    }
  }

  /** Tells those who watch. */
  changed(change: KvChange): void {
    for (const watcher of this.#watchers) watcher.push(change)
    if (this.options.ttlMs !== undefined) this.#sweepLater()
  }

  /** Ends the timer. */
  close(): void {
    clearTimeout(this.#sweep)
  }

  *#live(): Iterable<[string, Stored]> {
    const { state } = this.#store
    for (const entry of state.buckets.get(this.#name) ?? [])
      if (!state.isExpired(this.#name, entry[1])) yield entry
  }

  async #put(key: string, value: JsonValue, check: (found: Stored | undefined) => void): Promise<number> {
    expectKey(key)
    const text = payloadText('value', value)
    return this.#decide(transaction => {
      check(transaction.get(this.#name, key))
      return transaction.put(this.#name, key, text)
    })
  }

  async #decide<T>(decide: (transaction: Transaction) => T): Promise<T> {
    return this.options.memory ? this.#store.decideNow(decide) : this.#store.commit(decide)
  }

  #expectRevision(key: string, found: Stored | undefined, revision: number): void {
    if (found?.revision === revision) return
    const now = found ? `is at revision ${found.revision}` : 'is gone'
    throw conflict(`the key ${key} of ${this.#name} ${now}, not at ${revision}: read it again`)
  }

  #expectOpen(): void {
    if (this.#closing.aborted) throw closedError()
  }

  /** Removes what has expired, when the first value does. */
  #sweepLater(): void {
    if (this.#sweep || this.#closing.aborted) return
    const first = this.#store.state.buckets.get(this.#name)?.values().next().value
    if (!first) return
    const left = first.since + this.options.ttlMs! - performance.now()
    this.#sweep = setTimeout(
      () => {
        const again = (): void => {
          this.#sweep = undefined
          this.#sweepLater()
        }
        this.#decide(transaction => this.#removeExpired(transaction)).then(again, () => {
          // The disk is full: what has expired is not shown, and removed later.
          this.#sweep = setTimeout(again, this.options.ttlMs!).unref()
        })
      },
      Math.max(1, left),
    ).unref()
  }

  #removeExpired(transaction: Transaction): void {
    const { state } = this.#store
    for (const [key, stored] of state.buckets.get(this.#name) ?? []) {
      if (!state.isExpired(this.#name, stored)) return
      // Another change of this batch may have written it anew.
      if (!transaction.get(this.#name, key)) transaction.delete(this.#name, key)
    }
  }
}
