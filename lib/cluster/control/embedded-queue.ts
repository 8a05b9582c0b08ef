// embedded-queue.ts: a work queue of an embedded control plane. Jobs are values of a bucket; who has which is in memory.
import { Waiters } from './arrivals.js'
import type { Job, JsonValue, PullOptions, PushOptions, QueueOptions, WorkQueue } from './control-plane.js'
import { closedError, expectName, payloadText, pullOptions } from './names.js'
import type { Store, Transaction } from './store.js'

/** How long an id that left the queue is not added again. */
export const rememberedMs = 120_000
/** How long failed jobs are kept. */
export const failedMs = 7 * 24 * 3600 * 1000

/** What the bucket of a queue has for each job: the payload, and how often it was handed out. */
type StoredJob = readonly [payload: JsonValue, deliveries: number]

/** The buckets of a queue: its jobs, ids that left it, jobs that were handed out too often. */
export interface QueueBuckets {
  readonly jobs: string
  readonly past: string
  readonly failed: string
}

/** A queue whose jobs are in one bucket. */
export class EmbeddedQueue implements WorkQueue {
  readonly options: Required<QueueOptions>
  readonly #names: QueueBuckets
  readonly #store: Store
  readonly #closing: AbortSignal
  readonly #waiters = new Waiters()
  /** Jobs that nobody has: those that came back go out before new ones. */
  readonly #returned = new Set<string>()
  readonly #fresh = new Set<string>()
  /** Jobs that somebody has. */
  readonly #out = new Map<string, { delivery: number; timer: NodeJS.Timeout }>()

  constructor(names: QueueBuckets, options: Required<QueueOptions>, store: Store, closing: AbortSignal) {
    this.#names = names
    this.options = options
    this.#store = store
    this.#closing = closing
    const jobs = [...(store.state.buckets.get(names.jobs) ?? [])]
    // Pulling writes a job anew, so those that were handed out before are the last ones.
    for (const [id, { text }] of jobs) {
      const [, deliveries] = JSON.parse(text) as StoredJob
      const ready = deliveries > 0 ? this.#returned : this.#fresh
      ready.add(id)
    }
  }

  async push(id: string, payload: JsonValue, { again = false }: PushOptions = {}): Promise<boolean> {
    expectName('id', id)
    const text = payloadText('payload', payload)
    const { jobs, past } = this.#names
    const isNew = await this.#store.commit(transaction => {
      if (transaction.get(jobs, id) || (!again && transaction.get(past, id))) return false
      transaction.put(jobs, id, `[${text},0]`)
      return true
    })
    if (isNew) this.#fresh.add(id)
    this.#waiters.wake()
    return isNew
  }

  async pull(options?: PullOptions): Promise<Job[]> {
    const { max, waitMs, signal } = pullOptions(options)
    const giveUp = performance.now() + waitMs
    for (;;) {
      if (this.#closing.aborted) throw closedError()
      const jobs = await this.#take(max)
      const left = giveUp - performance.now()
      if (jobs.length > 0 || left <= 0 || signal?.aborted) return jobs
      if (this.#returned.size + this.#fresh.size === 0)
        await this.#waiters.wait([signal, this.#closing], left)
    }
  }

  async failed(): Promise<{ id: string; payload: JsonValue }[]> {
    const found = this.#store.state.buckets.get(this.#names.failed) ?? []
    return [...found].map(([id, { text }]) => ({ id, payload: JSON.parse(text) }))
  }

  /** Ends the timers. */
  close(): void {
    for (const { timer } of this.#out.values()) clearTimeout(timer)
  }

  async #take(max: number): Promise<Job[]> {
    const ids: string[] = []
    for (const ready of [this.#returned, this.#fresh]) {
      for (const id of ready) {
        if (ids.length === max) break
        ready.delete(id)
        ids.push(id)
      }
    }
    if (ids.length === 0) return []
    try {
      const taken = await this.#store.commit(transaction => ids.map(id => this.#handOut(transaction, id)))
      const given = taken.filter(job => job !== undefined)
      for (const { id, delivery } of given) this.#lend(id, delivery)
      return given
    } catch (error) {
      for (const id of ids) this.#returned.add(id)
      throw error
    }
  }

  #handOut(transaction: Transaction, id: string): Job | undefined {
    const { jobs, failed } = this.#names
    const stored = transaction.get(jobs, id)
    if (!stored) return undefined
    const [payload, deliveries] = JSON.parse(stored.text) as StoredJob
    if (deliveries >= this.options.maxDeliveries) {
      transaction.delete(jobs, id)
      transaction.put(failed, id, JSON.stringify(payload))
      return undefined
    }
    const delivery = deliveries + 1
    transaction.put(jobs, id, JSON.stringify([payload, delivery] satisfies StoredJob))
    return this.#jobOf(id, payload, delivery)
  }

  #jobOf(id: string, payload: JsonValue, delivery: number): Job {
    const isOurs = (): boolean => this.#out.get(id)?.delivery === delivery
    const expectOpen = (): void => {
      if (this.#closing.aborted) throw closedError()
    }
    return {
      id,
      payload,
      delivery,
      ack: async () => this.#finish(id),
      nack: async () => {
        expectOpen()
        if (isOurs()) this.#takeBack(id)
      },
      extend: async () => {
        expectOpen()
        if (isOurs()) this.#lend(id, delivery)
      },
    }
  }

  #lend(id: string, delivery: number): void {
    clearTimeout(this.#out.get(id)?.timer)
    const timer = setTimeout(() => this.#takeBack(id), this.options.ackWaitMs).unref()
    this.#out.set(id, { delivery, timer })
  }

  #takeBack(id: string): void {
    clearTimeout(this.#out.get(id)?.timer)
    this.#out.delete(id)
    this.#returned.add(id)
    this.#waiters.wake()
  }

  /** Also by one whose job was handed out again meanwhile: done is done. */
  async #finish(id: string): Promise<void> {
    const { jobs, past } = this.#names
    await this.#store.commit(transaction => {
      if (!transaction.get(jobs, id)) return
      transaction.delete(jobs, id)
      transaction.put(past, id, 'null')
    })
    clearTimeout(this.#out.get(id)?.timer)
    this.#out.delete(id)
    this.#returned.delete(id)
  }
}
