// retry.ts: attempts that are repeated, and when a server wants that.
import { setTimeout as sleep } from 'node:timers/promises'
import { SparkError } from '../core/errors.js'
import { RedirectError, type RequestOptions, request, StatusError } from './request.js'

/** A failure after which another attempt may succeed; its cause is what is thrown after the last one. */
export class Interrupted extends Error {
  /** Milliseconds that the server asks to wait. */
  readonly wait: number

  constructor(reason: SparkError, wait = 0) {
    super(reason.message, { cause: reason })
    this.wait = wait
  }
}

/** Options of {@link retry}. */
export interface RetryOptions {
  /** Attempts without progress. */
  readonly attempts: number
  readonly signal?: AbortSignal | undefined
  /** How far the work is: after an attempt that got further all attempts are left again. */
  readonly progress?: () => Promise<number>
}

const [firstWait, maxWait, maxAskedWait] = [500, 60_000, 300_000]

/**
 * Repeats an attempt that was {@link Interrupted}, after waits that double, or what the server asks for.
 * @throws what else the attempt throws, the cause of the last interruption, the reason of `signal` when it is aborted
 */
export async function retry<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { attempts, signal, progress = async () => 0 } = options
  for (let left = attempts, wait = firstWait; ; wait *= 2) {
    signal?.throwIfAborted()
    const before = await progress()
    try {
      return await attempt()
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error
      if ((await progress()) > before) [left, wait] = [attempts, firstWait]
      if (--left === 0) throw error.cause
      const own = Math.min(maxWait, wait * (0.5 + Math.random()))
      const time = Math.max(own, Math.min(maxAskedWait, error.wait))
      await sleep(time, undefined, { ...(signal && { signal }) }).catch(() => signal?.throwIfAborted())
    }
  }
}

const retried = [408, 425, 429, 500, 502, 503, 504]

/** Options of {@link requestOk}. */
export interface OkOptions extends RequestOptions {
  /** Statuses other than 2xx that are no failure. */
  readonly accepted?: readonly number[]
}

/**
 * The response to a GET request with a status of 2xx, or one of `accepted`.
 * @throws SparkError ERR_IO; Interrupted for a connection that fails and a status that passes; the reason of the signal
 */
export async function requestOk(url: URL, { accepted = [], ...options }: OkOptions): Promise<Response> {
  const response = await request(url, options).catch(error => {
    const isConnection =
      error instanceof SparkError && error.code === 'ERR_IO' && !(error instanceof RedirectError)
    throw isConnection ? new Interrupted(error) : error
  })
  if (response.ok || accepted.includes(response.status)) return response
  await response.body?.cancel()
  const refusal = new StatusError(url, response, options.token)
  throw retried.includes(response.status) ? new Interrupted(refusal, askedWait(response.headers)) : refusal
}

/** Milliseconds that Retry-After, or RateLimit where nothing remains of a limit, ask to wait; 0 where none does. */
export function askedWait(headers: Headers, now = Date.now()): number {
  const after = headers.get('retry-after')?.trim() ?? ''
  if (/^\d+$/.test(after)) return 1000 * Number(after)
  const date = Date.parse(after)
  if (Number.isFinite(date)) return Math.max(0, date - now)
  const limits = [
    ...(headers.get('ratelimit') ?? '').matchAll(/"[^"]*"\s*;\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)/g),
  ]
  return limits.reduce(
    (longest, [, rest, time]) => (Number(rest) > 0 ? longest : Math.max(longest, 1000 * Number(time))),
    0,
  )
}
