// embedded.ts: the control plane of one process: a journal on its disk, everything else in its memory.
import { chmod, readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { expectInteger, expectText } from '../../core/checks.js'
import { type Lock, lockFolder } from '../../io/lock.js'
import { Arrivals, Waiters } from './arrivals.js'
import type {
  BucketOptions,
  Bus,
  BusMessage,
  ControlPlane,
  DecisionLog,
  JsonValue,
  KeyValue,
  LeaseRequest,
  LogRecord,
  QueueOptions,
  Quorum,
  WorkQueue,
} from './control-plane.js'
import { EmbeddedBucket } from './embedded-kv.js'
import { EmbeddedQueue, failedMs, rememberedMs } from './embedded-queue.js'
import { Journal } from './journal.js'
import { Leases } from './lease.js'
import {
  bucketOptions,
  closedError,
  conflict,
  expectSame,
  expectSubject,
  matchesSubject,
  payloadText,
  queueOptions,
} from './names.js'
import { Store } from './store.js'

/** Most messages that wait for a slow reader of the bus. */
export const maxWaitingMessages = 10_000

/**
 * A control plane in this process that needs nothing else. What it acknowledged is on the disk and is there again after the
 * death of the process, at whatever moment. It is for one machine, or for a cluster whose first node decides alone.
 * @example
 * const plane = await EmbeddedControlPlane.open('cluster-state')
 * const seq = await plane.log.append({ placed: 'layers 0-15', on: 'spark-1' })
 * await plane.close()
 */
export class EmbeddedControlPlane implements ControlPlane {
  /** Where it keeps what it holds. */
  readonly kind = 'embedded'
  /** Decisions. */
  readonly log: DecisionLog
  /** Messages. */
  readonly bus: Bus
  readonly #store: Store
  readonly #journal: Journal
  readonly #lock: Lock
  readonly #closing = new AbortController()
  readonly #buckets: Map<string, EmbeddedBucket>
  readonly #queues = new Map<string, EmbeddedQueue>()
  readonly #leases = new Leases(() => this.kv('leases'))
  #closed: Promise<void> | undefined

  private constructor(lock: Lock, journal: Journal, texts: readonly string[]) {
    const buckets = new Map<string, EmbeddedBucket>()
    this.#buckets = buckets
    this.#lock = lock
    this.#journal = journal
    this.#store = new Store(journal, texts, bucket => !buckets.get(bucket)?.options.memory)
    this.#store.state.onChange = (bucket, change) => buckets.get(bucket)?.changed(change)
    this.log = new EmbeddedLog(this.#store, this.#closing.signal)
    this.bus = new EmbeddedBus(this.#closing.signal)
  }

  /**
   * Opens the control plane that is kept in a folder, or begins one there.
   * @throws SparkError ERR_BUSY naming the process that has the folder open; ERR_FORMAT where what was acknowledged is
   * damaged; ERR_IO
   */
  static async open(folder: string): Promise<EmbeddedControlPlane> {
    expectText('folder', folder)
    const lock = await lockFolder(folder)
    try {
      await chmod(folder, 0o700)
      await removeUnfinished(folder)
      const { journal, texts } = await Journal.open(path.join(folder, journalName))
      return new EmbeddedControlPlane(lock, journal, texts)
    } catch (error) {
      lock.release()
      throw error
    }
  }

  /** Who must agree, and whether they can at present. */
  get quorum(): Quorum {
    const failure = this.#journal.broken ?? this.#store.failure
    const state = failure ? `; at present nothing can be stored: ${(failure as Error).message}` : ''
    const note = `this process decides alone: while it is away nothing can be written${state}`
    return { members: 1, needed: 1, writable: !failure && !this.#closing.signal.aborted, note }
  }

  kv(name: string, options?: BucketOptions): KeyValue {
    return this.#bucket(name, bucketOptions(name, options))
  }

  queue(name: string, options?: QueueOptions): WorkQueue {
    const complete = queueOptions(name, options)
    this.#expectOpen()
    const open = this.#queues.get(name)
    if (open) {
      expectSame(`queue ${name}`, open.options, complete)
      return open
    }
    // No bucket of a user has a name with a colon.
    const names = { jobs: `queue:${name}`, past: `past:${name}`, failed: `failed:${name}` }
    this.#bucket(names.past, { ttlMs: rememberedMs })
    this.#bucket(names.failed, { ttlMs: failedMs })
    const queue = new EmbeddedQueue(names, complete, this.#store, this.#closing.signal)
    this.#queues.set(name, queue)
    return queue
  }

  lease(name: string, holder: string, ttlMs: number): LeaseRequest {
    return this.#leases.request(name, holder, ttlMs)
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    await this.#leases.close()
    this.#closing.abort()
    for (const part of [...this.#buckets.values(), ...this.#queues.values()]) part.close()
    try {
      await this.#store.close()
    } finally {
      this.#lock.release()
    }
  }

  #bucket(name: string, options: BucketOptions): EmbeddedBucket {
    this.#expectOpen()
    const open = this.#buckets.get(name)
    if (open) {
      expectSame(`bucket ${name}`, open.options, options)
      return open
    }
    const bucket = new EmbeddedBucket(name, options, this.#store, this.#closing.signal)
    this.#buckets.set(name, bucket)
    return bucket
  }

  #expectOpen(): void {
    if (this.#closing.signal.aborted) throw closedError()
  }
}

const journalName = 'journal.jsonl'

/** Removes what a process left that was killed while it wrote the journal anew. */
async function removeUnfinished(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter(
    name => name.startsWith(`.${journalName}.`) && name.endsWith('.tmp'),
  )
  await Promise.all(names.map(name => rm(path.join(folder, name), { force: true })))
}

class EmbeddedLog implements DecisionLog {
  readonly #store: Store
  readonly #closing: AbortSignal
  readonly #waiters = new Waiters()

  constructor(store: Store, closing: AbortSignal) {
    this.#store = store
    this.#closing = closing
    store.state.onRecord = () => this.#waiters.wake()
  }

  async append(record: JsonValue, expect?: number): Promise<number> {
    const text = payloadText('record', record)
    if (expect !== undefined) expectInteger('expect', expect, 0)
    return this.#store.commit(transaction => {
      if (expect !== undefined && transaction.seq !== expect)
        throw conflict(`the last record has number ${transaction.seq}, not ${expect}: read what was appended`)
      return transaction.append(text)
    })
  }

  async *read(from: number): AsyncIterable<LogRecord> {
    expectInteger('from', from, 0)
    yield* this.#records(from, this.#store.state.seq)
  }

  async *follow(from: number, signal: AbortSignal): AsyncIterable<LogRecord> {
    expectInteger('from', from, 0)
    if (this.#closing.aborted) throw closedError()
    for (let next = from; !signal.aborted && !this.#closing.aborted; ) {
      for (const found of this.#records(next, this.#store.state.seq)) {
        if (signal.aborted || this.#closing.aborted) return
        yield found
        next = found.seq + 1
      }
      if (this.#store.state.seq < next) await this.#waiters.wait([signal, this.#closing])
    }
  }

  *#records(from: number, to: number): Iterable<LogRecord> {
    if (this.#closing.aborted) throw closedError()
    const { records } = this.#store.state
    const oldest = records.keys().next().value ?? 1
    for (let seq = Math.max(from, oldest); seq <= to; seq++) {
      const text = records.get(seq)
      // A reader that is slow may be overtaken by the end of what is kept.
      if (text !== undefined) yield { seq, record: JSON.parse(text) }
    }
  }
}

class EmbeddedBus implements Bus {
  readonly #closing: AbortSignal
  readonly #readers = new Set<{ pattern: string; messages: Arrivals<BusMessage> }>()

  constructor(closing: AbortSignal) {
    this.#closing = closing
  }

  async publish(subject: string, payload: JsonValue): Promise<void> {
    expectSubject(subject, false)
    const text = payloadText('payload', payload)
    if (this.#closing.aborted) throw closedError()
    for (const { pattern, messages } of this.#readers)
      if (matchesSubject(pattern, subject)) messages.push({ subject, payload: JSON.parse(text) })
  }

  subscribe(pattern: string, signal: AbortSignal): AsyncIterable<BusMessage> & { ready: Promise<void> } {
    expectSubject(pattern, true)
    if (this.#closing.aborted) throw closedError()
    const messages = new Arrivals<BusMessage>([signal, this.#closing], { limit: maxWaitingMessages })
    const reader = { pattern, messages }
    this.#readers.add(reader)
    signal.addEventListener('abort', () => this.#readers.delete(reader), { once: true })
    if (signal.aborted) this.#readers.delete(reader)
    return Object.assign(messages, { ready: Promise.resolve() })
  }
}
