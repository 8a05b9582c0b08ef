// paced.ts: long computations in slices that yield to the event loop and check an AbortSignal.
import { setImmediate } from 'node:timers/promises'

/** Work that yields wherever it may pause, at least once per node or tensor, and returns its result. */
export type Paced<T> = Generator<void, T, void>

/** Milliseconds that work may block the event loop. */
const slice = 3

/** Runs work to its end without pauses. */
export function atOnce<T>(work: Paced<T>): T {
  for (;;) {
    const { done, value } = work.next()
    if (done) return value
  }
}

/** Runs a long operation, such as loading a model, in slices between turns of the event loop. */
export class Pacer {
  /** Aborts the work. */
  readonly signal: AbortSignal | undefined
  #due = performance.now() + slice

  constructor(signal?: AbortSignal | undefined) {
    this.signal = signal
    signal?.throwIfAborted()
  }

  /**
   * Runs work to its end.
   * @throws what the work throws, and the reason of the signal when it is aborted
   */
  async do<T>(work: Paced<T>): Promise<T> {
    try {
      for (;;) {
        const { done, value } = work.next()
        if (done) return value
        if (this.isDue) await this.#turn()
      }
    } finally {
      work.return(undefined as never)
    }
  }

  /** Whether the current slice has used up its time. */
  get isDue(): boolean {
    return performance.now() >= this.#due
  }

  /**
   * Pauses, if it is time to.
   * @throws the reason of the signal when it is aborted
   */
  async pause(): Promise<void> {
    if (this.isDue) await this.#turn()
    this.signal?.throwIfAborted()
  }

  async #turn(): Promise<void> {
    await setImmediate()
    this.signal?.throwIfAborted()
    this.#due = performance.now() + slice
  }
}

/** The results of `change` for each item. */
export function* mapPaced<T, U>(items: Iterable<T>, change: (item: T, i: number) => U): Paced<U[]> {
  const made: U[] = []
  for (const item of items) {
    made.push(change(item, made.length))
    yield
  }
  return made
}

/** Calls a function for each item. */
export function* eachPaced<T>(items: Iterable<T>, visit: (item: T) => void): Paced<void> {
  for (const item of items) {
    visit(item)
    yield
  }
}
