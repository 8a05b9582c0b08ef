// sampling.ts: repeated measurement at an interval, as an iteration.
import { setTimeout as sleep } from 'node:timers/promises'

/** What is measured, how often, until when. */
export interface Sampling<Sample> {
  readonly intervalMs: number
  readonly signal: AbortSignal | undefined
  sample(): Promise<Sample>
}

/**
 * Samples until `stop` or the signal aborts.
 * @param keepAlive - whether a wait for the next sample keeps the process alive
 */
export async function* samples<Sample>(
  sampling: Sampling<Sample>,
  stop: AbortSignal,
  keepAlive: boolean,
): AsyncGenerator<Sample, undefined> {
  const signal = sampling.signal ? AbortSignal.any([stop, sampling.signal]) : stop
  while (!signal.aborted) {
    const begun = performance.now()
    yield await sampling.sample()
    const wait = sampling.intervalMs - (performance.now() - begun)
    await sleep(Math.max(0, wait), undefined, { signal, ref: keepAlive }).catch(() => {}) // rejects when aborted
  }
  return undefined
}

/** An iterator over samples whose `return` ends a wait for the next one at once. */
export function iterate<Sample>(sampling: Sampling<Sample>): AsyncIterator<Sample, undefined> {
  const stop = new AbortController()
  const all = samples(sampling, stop.signal, true)
  return {
    next: () => all.next(),
    return: async () => {
      stop.abort()
      await all.return(undefined)
      return { done: true, value: undefined }
    },
  }
}
