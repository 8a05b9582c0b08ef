// rate-limits.ts: how often an address, a peer and a token may ask.
import { isIPv6 } from 'node:net'
import { expectInteger } from '../../core/checks.js'

/** At most `count` in `seconds`. */
export interface Rate {
  /** How many. */
  readonly count: number
  /** The length of a window. */
  readonly seconds: number
}

/** Whose requests are counted: those of an IP address, of a node, of a token. */
export type RateKind = 'address' | 'peer' | 'token'

/** Rates of each kind, unless others are given. */
export const defaultRates: Readonly<Record<RateKind, Rate>> = {
  address: { count: 60, seconds: 10 },
  peer: { count: 10_000, seconds: 1 },
  token: { count: 1000, seconds: 1 },
}

/** The result of {@link RateLimits.take}. */
export interface Taken {
  /** Whether it may go on. */
  readonly isAllowed: boolean
  /** Whether this is the first refusal of a window: the one to record. */
  readonly isFirstRefusal: boolean
  /** Until the next window. */
  readonly retryMs: number
}

type Limiter = import('rate-limiter-flexible').RateLimiterMemory

/**
 * Counts requests in windows, in memory. Addresses of IPv6 count by their /64, for whoever has one has all of it.
 * @example
 * const limits = new RateLimits({ peer: { count: 100, seconds: 1 } })
 * if (!(await limits.take('peer', nodeId)).isAllowed) refuse()
 */
export class RateLimits {
  readonly #rates: Readonly<Record<RateKind, Rate>>
  #limiters: Promise<Readonly<Record<RateKind, Limiter>>> | undefined

  /** @throws SparkError ERR_ARGUMENT for a rate that is not at least 1 in 1 s */
  constructor(rates: Partial<Record<RateKind, Rate>> = {}) {
    this.#rates = { ...defaultRates, ...rates }
    for (const [kind, { count, seconds }] of Object.entries(this.#rates)) {
      expectInteger(`rates.${kind}.count`, count, 1)
      expectInteger(`rates.${kind}.seconds`, seconds, 1)
    }
  }

  /** Counts a request of `key`, or `cost` of them. */
  async take(kind: RateKind, key: string, cost = 1): Promise<Taken> {
    this.#limiters ??= makeLimiters(this.#rates)
    const limiter = (await this.#limiters)[kind]
    const name = kind === 'address' ? addressKey(key) : key
    const isResult = (value: unknown): value is { consumedPoints: number; msBeforeNext: number } =>
      !(value instanceof Error)
    try {
      await limiter.consume(name, cost)
      return { isAllowed: true, isFirstRefusal: false, retryMs: 0 }
    } catch (result) {
      if (!isResult(result)) throw result
      const { consumedPoints, msBeforeNext } = result
      const isFirstRefusal = consumedPoints - cost <= this.#rates[kind].count
      return { isAllowed: false, isFirstRefusal, retryMs: msBeforeNext }
    }
  }
}

async function makeLimiters(
  rates: Readonly<Record<RateKind, Rate>>,
): Promise<Readonly<Record<RateKind, Limiter>>> {
  const { RateLimiterMemory } = await import('rate-limiter-flexible')
  const limiter = (kind: RateKind): Limiter =>
    new RateLimiterMemory({ points: rates[kind].count, duration: rates[kind].seconds })
  return { address: limiter('address'), peer: limiter('peer'), token: limiter('token') }
}

/** An address as it is counted: the first 64 bits of IPv6, and IPv4 that is mapped into IPv6 as IPv4. */
export function addressKey(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)
  if (mapped) return mapped[1]!
  if (!isIPv6(address)) return address
  const [before = '', after] = address.split('%')[0]!.split('::')
  const head = before === '' ? [] : before.split(':')
  const tail = after ? after.split(':') : []
  const zeros = after === undefined ? [] : Array<string>(Math.max(0, 8 - head.length - tail.length)).fill('0')
  return `${[...head, ...zeros, ...tail].slice(0, 4).join(':')}::/64`
}
