// arrivals.ts: what arrives for a reader who may be slow, in bounded memory.

/** What bounds the memory of {@link Arrivals}. */
export interface ArrivalLimits<T> {
  /** Items with the same key: the last one stands for all. */
  readonly keyOf?: (item: T) => string
  /** Most items that wait; the oldest ones are dropped. */
  readonly limit?: number
}

/** Items that are read in the order of their arrival, until one of the signals is aborted. */
export class Arrivals<T> implements AsyncIterable<T> {
  readonly #items = new Map<string | number, T>()
  readonly #limits: ArrivalLimits<T>
  readonly #signals: readonly AbortSignal[]
  #count = 0
  #wake: (() => void) | undefined

  constructor(signals: readonly AbortSignal[], limits: ArrivalLimits<T>) {
    this.#signals = signals
    this.#limits = limits
  }

  /** Adds an item. */
  push(item: T): void {
    const { keyOf, limit = Number.POSITIVE_INFINITY } = this.#limits
    const key = keyOf ? keyOf(item) : this.#count++
    this.#items.delete(key)
    this.#items.set(key, item)
    if (this.#items.size > limit) this.#items.delete(this.#items.keys().next().value!)
    this.#wake?.()
  }

  /** Takes the oldest item, if there is one. */
  take(): T | undefined {
    const [first] = this.#items
    if (!first) return undefined
    this.#items.delete(first[0])
    return first[1]
  }

  async *[Symbol.asyncIterator](): AsyncIterator<T> {
    const wake = (): void => this.#wake?.()
    for (const signal of this.#signals) signal.addEventListener('abort', wake)
    try {
      while (!this.#signals.some(({ aborted }) => aborted)) {
        const size = this.#items.size
        if (size > 0) yield this.take() as T
        else
          await new Promise<void>(resolve => {
            this.#wake = resolve
          })
      }
    } finally {
      for (const signal of this.#signals) signal.removeEventListener('abort', wake)
    }
  }
}

/** Resolves after `ms`, when a signal is aborted, or when `wake` of {@link Waiters} is called: whichever is first. */
export class Waiters {
  readonly #waiting = new Set<() => void>()

  /** Wakes all who wait. */
  wake(): void {
    for (const resolve of this.#waiting) resolve()
  }

  /** Waits for at most `ms`; without it, until woken. */
  async wait(signals: readonly (AbortSignal | undefined)[], ms?: number): Promise<void> {
    if (signals.some(signal => signal?.aborted)) return
    let timer: NodeJS.Timeout | undefined
    let done = (): void => {}
    await new Promise<void>(resolve => {
      done = resolve
      this.#waiting.add(resolve)
      for (const signal of signals) signal?.addEventListener('abort', done)
      if (ms !== undefined) timer = setTimeout(resolve, ms)
    })
    clearTimeout(timer)
    this.#waiting.delete(done)
    for (const signal of signals) signal?.removeEventListener('abort', done)
  }
}
