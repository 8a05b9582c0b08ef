// fetch-all.ts: several downloads at a time.

/** Downloads that run at a time. */
const concurrency = 4

/**
 * Fetches items, a few at a time. The first failure ends the others.
 * @throws what the first one that failed throws
 */
export async function fetchAll<T>(
  items: readonly T[],
  signal: AbortSignal | undefined,
  fetchOne: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const failure = new AbortController()
  const ended = signal ? AbortSignal.any([signal, failure.signal]) : failure.signal
  const left = [...items]
  const work = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) {
      ended.throwIfAborted()
      await fetchOne(item, ended)
    }
  }
  const workers = Array.from({ length: Math.min(concurrency, items.length) }, () =>
    work().catch(error => {
      failure.abort(error)
      throw error
    }),
  )
  const outcomes = await Promise.allSettled(workers)
  signal?.throwIfAborted()
  if (outcomes.some(({ status }) => status === 'rejected')) throw failure.signal.reason
}
