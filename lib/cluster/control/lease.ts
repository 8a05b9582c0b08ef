// lease.ts: leases on compare-and-set. Nobody's clock is compared with another's: a holder counts from before it asked for a
// renewal, a rival from after it saw it, so the holder's time is always up first. Fencing numbers are for holders that sleep.
import { setTimeout as sleep } from 'node:timers/promises'
import { expectInteger, expectSignal } from '../../core/checks.js'
import type { KeyValue, KvEntry, Lease, LeaseHolder, LeaseRequest } from './control-plane.js'
import { conflict, expectLease, isConflict } from './names.js'

/** What a lease's key holds. A type, for interfaces are no JSON values. */
type Held = {
  readonly holder: string
  readonly ttlMs: number
  /** null in the entry that took it: its revision is the fencing number. */
  readonly fencing: number | null
}

const heldIn = (entry: KvEntry): Held => entry.value as Held
const fencingOf = (entry: KvEntry): number => heldIn(entry).fencing ?? entry.revision

/** The leases of a control plane. */
export class Leases {
  readonly #kv: () => KeyValue
  /** When which revision was seen first. */
  readonly #seen = new Map<string, { revision: number; since: number }>()
  readonly #held = new Set<HeldLease>()

  constructor(kv: () => KeyValue) {
    this.#kv = kv
  }

  /** @throws SparkError ERR_ARGUMENT */
  request(name: string, holder: string, ttlMs: number): LeaseRequest {
    expectLease(name, holder, ttlMs)
    return {
      acquire: async ({ waitMs = 0, signal } = {}) => {
        expectInteger('waitMs', waitMs, 0)
        expectSignal('signal', signal)
        return this.#acquire(name, { holder, ttlMs, fencing: null }, performance.now() + waitMs, signal)
      },
      current: async () => {
        const entry = await this.#kv().get(name)
        return entry ? { holder: heldIn(entry).holder, fencing: fencingOf(entry) } : null
      },
    }
  }

  async #acquire(name: string, wanted: Held, giveUp: number, signal?: AbortSignal): Promise<Lease | null> {
    const pause = Math.min(Math.max(wanted.ttlMs / 10, 10), 250)
    for (;;) {
      const began = performance.now()
      const revision = await this.#take(name, wanted)
      if (revision !== undefined) {
        const lease = new HeldLease(this.#kv(), name, wanted, revision, began)
        this.#held.add(lease)
        lease.lost.addEventListener('abort', () => this.#held.delete(lease))
        return lease
      }
      const left = giveUp - performance.now()
      if (left <= 0 || signal?.aborted) return null
      await sleep(Math.min(pause, left), undefined, signal && { signal }).catch(() => {})
    }
  }

  /** The revision under which it is ours, or undefined. */
  async #take(name: string, wanted: Held): Promise<number | undefined> {
    const entry = await this.#kv().get(name)
    try {
      if (!entry) return await this.#kv().create(name, wanted)
      if (!this.#isOver(name, entry)) return undefined
      return await this.#kv().update(name, wanted, entry.revision)
    } catch (error) {
      if (isConflict(error)) return undefined
      throw error
    }
  }

  #isOver(name: string, entry: KvEntry): boolean {
    const seen = this.#seen.get(name)
    const now = performance.now()
    if (seen?.revision === entry.revision) return now - seen.since > heldIn(entry).ttlMs
    this.#seen.set(name, { revision: entry.revision, since: now })
    return false
  }

  /** Gives all up that are held. */
  async close(): Promise<void> {
    await Promise.all([...this.#held].map(lease => lease.release().catch(() => {})))
  }
}

class HeldLease implements Lease {
  readonly fencing: number
  readonly #kv: KeyValue
  readonly #value: Held
  readonly #lost = new AbortController()
  #revision: number
  #timer: NodeJS.Timeout | undefined
  #keeping: NodeJS.Timeout | undefined
  #renewal: Promise<void> | undefined

  constructor(
    kv: KeyValue,
    readonly name: string,
    wanted: Held,
    revision: number,
    began: number,
  ) {
    this.fencing = revision
    this.#kv = kv
    this.#value = { ...wanted, fencing: revision }
    this.#revision = revision
    this.#lastsFrom(began)
  }

  get holder(): string {
    return this.#value.holder
  }

  get lost(): AbortSignal {
    return this.#lost.signal
  }

  #lastsFrom(began: number): void {
    clearTimeout(this.#timer)
    const left = began + this.#value.ttlMs - performance.now()
    if (left <= 0) this.#lose(`the lease ${this.name} was not renewed in ${this.#value.ttlMs} ms`)
    else
      this.#timer = setTimeout(() => {
        this.#lose(`the lease ${this.name} was not renewed in ${this.#value.ttlMs} ms`)
      }, left).unref()
  }

  #lose(why: string): void {
    clearTimeout(this.#timer)
    clearInterval(this.#keeping)
    this.#lost.abort(conflict(why))
  }

  renew(): Promise<void> {
    this.#renewal ??= this.#renew().finally(() => {
      this.#renewal = undefined
    })
    return this.#renewal
  }

  async #renew(): Promise<void> {
    this.lost.throwIfAborted()
    const began = performance.now()
    try {
      this.#revision = await this.#update()
    } catch (error) {
      if (isConflict(error)) this.#lose(`the lease ${this.name} was taken over`)
      else throw error
    }
    this.lost.throwIfAborted()
    this.#lastsFrom(began)
    this.lost.throwIfAborted()
  }

  /** An earlier renewal that nobody answered may have been stored: then the revision is another one, and the lease still ours. */
  async #update(): Promise<number> {
    try {
      return await this.#kv.update(this.name, this.#value, this.#revision)
    } catch (error) {
      const entry = isConflict(error) ? await this.#kv.get(this.name) : undefined
      if (!entry || fencingOf(entry) !== this.fencing) throw error
      return this.#kv.update(this.name, this.#value, entry.revision)
    }
  }

  keep(): void {
    if (this.lost.aborted) return
    // A renewal that nobody answers is tried again until the time is up, which `lost` tells.
    this.#keeping ??= setInterval(() => void this.renew().catch(() => {}), this.#value.ttlMs / 3).unref()
  }

  async release(): Promise<void> {
    await this.#renewal?.catch(() => {})
    if (this.lost.aborted) return
    this.#lose(`the lease ${this.name} was released`)
    try {
      await this.#kv.delete(this.name, this.#revision)
    } catch (error) {
      if (!isConflict(error)) throw error
    }
  }
}

/**
 * Remembers the highest fencing number of each lease, and refuses commands of holders that have lost theirs.
 * @example
 * const guard = new FencingGuard()
 * guard.check('scheduler', lease.fencing)
 */
export class FencingGuard {
  readonly #highest = new Map<string, number>()

  /**
   * To be called with each command, before anything is done.
   * @param name - of the lease that the command was given under
   * @throws SparkError ERR_ARGUMENT for no fencing number; ERR_CONFLICT for one of an earlier holder
   */
  check(name: string, fencing: number): void {
    expectInteger('fencing', fencing, 1)
    const highest = this.#highest.get(name) ?? 0
    if (fencing < highest) {
      const remedy = 'whoever sent this has lost the lease and must stop'
      throw conflict(`the lease ${name} has moved on to fencing number ${highest}, got ${fencing}: ${remedy}`)
    }
    this.#highest.set(name, fencing)
  }

  /** Learns of a holder by other means than a command. */
  learn(name: string, { fencing }: LeaseHolder): void {
    this.#highest.set(name, Math.max(fencing, this.#highest.get(name) ?? 0))
  }
}
