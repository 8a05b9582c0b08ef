// connection-gate.ts: which connections a listener takes: counted by address and in total, and by how fast they come.
import { addressKey, RateLimits } from './rate-limits.js'
import type { Refusals } from './refusals.js'

/** What a {@link ConnectionGate} lets in. */
export interface ConnectionLimits {
  /** How often an address may connect. Default: {@link RateLimits} as they are. */
  readonly limits?: RateLimits
  /** Connections at once, handshakes included. Default: 1024. */
  readonly total?: number
  /** Of one address. Default: 64. */
  readonly perAddress?: number
}

/** Counts the connections of a listener. One that is refused costs no more than its end. */
export class ConnectionGate {
  readonly #limits: RateLimits
  readonly #total: number
  readonly #perAddress: number
  readonly #refusals: Refusals
  readonly #open = new Map<string, number>()
  #count = 0

  constructor(refusals: Refusals, limits: ConnectionLimits = {}) {
    this.#refusals = refusals
    this.#limits = limits.limits ?? new RateLimits()
    this.#total = limits.total ?? 1024
    this.#perAddress = limits.perAddress ?? 64
  }

  /**
   * Asks whether one more connection of an address may begin. One that may not is counted as refused; of many that come too
   * fast the first one is recorded.
   * @returns a function for when the connection has ended, or null
   */
  async enter(address: string): Promise<(() => void) | null> {
    const key = addressKey(address)
    const taken = await this.#limits.take('address', address)
    const count = this.#open.get(key) ?? 0
    if (!taken.isAllowed || count >= this.#perAddress || this.#count >= this.#total) {
      const reason = taken.isAllowed
        ? 'too many connections are open'
        : 'too many connections in a short time'
      this.#refusals.add({ kind: 'too many', reason, address }, taken.isAllowed || taken.isFirstRefusal)
      return null
    }
    this.#open.set(key, count + 1)
    this.#count++
    let isOpen = true
    return () => {
      if (!isOpen) return
      isOpen = false
      this.#count--
      const left = this.#open.get(key)! - 1
      if (left > 0) this.#open.set(key, left)
      else this.#open.delete(key)
    }
  }
}
