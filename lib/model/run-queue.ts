// run-queue.ts: work on a model, one after another in the order in which it was asked for.

/** Does what it is given one after another. */
export class RunQueue {
  #last: Promise<unknown> = Promise.resolve()

  /** Does something after all that was asked for before, however that has ended. */
  add<T>(work: () => T | Promise<T>): Promise<T> {
    const done = this.#last.then(work)
    this.#last = done.catch(() => undefined)
    return done
  }
}

/** Settles as `work` does, or rejects as soon as `signal` is aborted. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work
  let stop: () => void = () => undefined
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
    if (signal.aborted) stop()
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
