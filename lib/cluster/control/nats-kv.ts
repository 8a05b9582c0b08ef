// nats-kv.ts: a bucket in JetStream, in the layout of @nats-io/kv. Writes carry an id of their own, so that one that was not
// answered may be repeated and counts once.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Consumer, JsMsg } from '@nats-io/jetstream'
import type { KV } from '@nats-io/kv'
import { expectInteger } from '../../core/checks.js'
import { debug } from '../../core/log.js'
import { Arrivals } from './arrivals.js'
import type { BucketOptions, JsonValue, KeyValue, KvChange, KvEntry } from './control-plane.js'
import { conflict, expectKey, expectSame, payloadText } from './names.js'
import { type NatsLink, reading, retryMs } from './nats-connection.js'
import { isThere, writeDown } from './nats-streams.js'

/** A value, or that it was deleted. */
interface Last {
  readonly revision: number
  /** undefined for a deletion. */
  readonly value: JsonValue | undefined
  /** When the server stored it, in ms. */
  readonly created: number
}

const deletions: readonly string[] = ['DEL', 'PURGE']

/** A bucket. */
export class NatsBucket implements KeyValue {
  readonly options: BucketOptions
  readonly #name: string
  readonly #link: NatsLink
  readonly #replicas: number
  readonly #closing: AbortSignal
  #opening: Promise<KV> | undefined
  /** When the server made it. */
  #created = ''

  constructor(name: string, options: BucketOptions, link: NatsLink, replicas: number, closing: AbortSignal) {
    this.#name = name
    this.options = options
    this.#link = link
    this.#replicas = replicas
    this.#closing = closing
    link.onReconnect(() => {
      this.#opening = undefined
    })
  }

  async get(key: string): Promise<KvEntry | undefined> {
    expectKey(key)
    const last = await this.#last(key)
    return last?.value === undefined ? undefined : { key, value: last.value, revision: last.revision }
  }

  async create(key: string, value: JsonValue): Promise<number> {
    const text = payloadText('value', value)
    expectKey(key)
    const last = await this.#last(key)
    if (last && last.value !== undefined)
      throw conflict(`${this.#name} has the key ${key} already, at revision ${last.revision}`)
    return this.#write(key, text, last?.revision ?? 0)
  }

  async update(key: string, value: JsonValue, revision: number): Promise<number> {
    expectInteger('revision', revision, 1)
    expectKey(key)
    return this.#write(key, payloadText('value', value), revision)
  }

  async put(key: string, value: JsonValue): Promise<number> {
    expectKey(key)
    return this.#write(key, payloadText('value', value))
  }

  async delete(key: string, revision?: number): Promise<void> {
    if (revision !== undefined) expectInteger('revision', revision, 1)
    expectKey(key)
    if (revision === undefined && (await this.get(key)) === undefined) return
    await this.#write(key, undefined, revision)
  }

  async keys(): Promise<string[]> {
    const found = new Set<string>()
    await this.#link.persist(`keys of ${this.#name}`, async () => {
      found.clear()
      const consumer = await this.#consumer(true)
      try {
        await this.#readKeys(consumer, found)
      } finally {
        consumer.delete().catch(() => {})
      }
    })
    return [...found]
  }

  async #readKeys(consumer: Consumer, found: Set<string>): Promise<void> {
    if ((await consumer.info()).num_pending === 0) return
    const messages = await consumer.consume(reading)
    let isStale = false
    const off = this.#link.onReconnect(() => {
      isStale = true
      void messages.close().catch(() => {})
    })
    try {
      for await (const message of messages) {
        const { key, isDeleted } = this.#read(message)
        if (isDeleted) found.delete(key)
        else found.add(key)
        if (message.info.pending === 0) break
      }
    } finally {
      off()
      await messages.close()
    }
    // Tried again: keys may be missing.
    if (isStale) throw new Error('the connection was lost')
  }

  async *watch(signal: AbortSignal): AsyncIterable<KvChange> {
    const changes = new Arrivals<KvChange>([signal, this.#closing], { keyOf: ({ key }) => key })
    const expiry = new Expiry(this.options.ttlMs, async key => {
      // Only the server says what has expired.
      if ((await this.#last(key)) === undefined) changes.push({ key, value: undefined, revision: 0 })
      else expiry.later(key, Date.now())
    })
    let [newest, created] = [0, '']
    const known = new Set<string>()
    const take = (message: JsMsg): void => {
      if (message.seq <= newest) return
      newest = message.seq
      const { key, isDeleted } = this.#read(message)
      const value = isDeleted ? undefined : (message.json() as JsonValue)
      changes.push({ key, value, revision: message.seq })
      if (isDeleted) {
        known.delete(key)
        expiry.forget(key)
        return
      }
      known.add(key)
      expiry.later(key, message.info.timestampNanos / 1e6)
    }
    const open = () =>
      this.#link.persist(`watch of ${this.#name}`, async () => {
        const consumer = await this.#consumer(false)
        // Of a bucket that was made anew all is gone, and its revisions begin at 1.
        if (created !== this.#created) {
          newest = 0
          for (const key of known) changes.push({ key, value: undefined, revision: 0 })
          known.clear()
        }
        created = this.#created
        return consumer.consume({ ...reading, callback: take })
      })
    // An ordered consumer makes itself anew where it was, when its server is lost; what came over a lost connection is read again.
    let messages = open()
    await messages
    const ended = AbortSignal.any([signal, this.#closing])
    const again = async (before: ReturnType<typeof open>): ReturnType<typeof open> => {
      await before.then(old => old.close()).catch(() => {})
      for (;;) {
        try {
          return await open()
        } catch (error) {
          debug(`nats: ${(error as Error).message}`)
          await sleep(retryMs, undefined, { signal: ended })
        }
      }
    }
    const off = this.#link.onReconnect(() => {
      messages = again(messages)
      // It ends with the watch.
      messages.catch(() => {})
    })
    try {
      yield* changes
    } finally {
      off()
      expiry.close()
      await messages.then(each => each.close()).catch(() => {})
    }
  }

  async #consumer(isHeadersOnly: boolean): Promise<Consumer> {
    await this.#open()
    const { DeliverPolicy } = this.#link.packages.jetstream
    return this.#link.stream.consumers.get(`KV_${this.#name}`, {
      deliver_policy: DeliverPolicy.LastPerSubject,
      filter_subjects: `$KV.${this.#name}.>`,
      headers_only: isHeadersOnly,
    })
  }

  #read(message: JsMsg): { key: string; isDeleted: boolean } {
    const key = message.subject.slice(`$KV.${this.#name}.`.length)
    return { key, isDeleted: deletions.includes(message.headers?.get('KV-Operation') ?? '') }
  }

  /** The last entry of a key, also where it is a deletion. */
  async #last(key: string): Promise<Last | undefined> {
    return this.#link.persist(`${this.#name}.${key}`, async () => {
      const entry = await (await this.#open()).get(key)
      if (!entry) return undefined
      const value = deletions.includes(entry.operation) ? undefined : entry.json<JsonValue>()
      return { revision: entry.revision, value, created: entry.created.getTime() }
    })
  }

  /** @param text - undefined deletes @param revision - that the last entry must have, 0 for none */
  async #write(key: string, text: string | undefined, revision?: number): Promise<number> {
    const { headers } = this.#link.packages.transport
    const subject = `$KV.${this.#name}.${key}`
    const msgID = randomUUID()
    return this.#link.persist(`${this.#name}.${key}`, async number => {
      await this.#open()
      const marks = headers()
      if (text === undefined) marks.set('KV-Operation', 'DEL')
      const expect = revision === undefined ? {} : { lastSubjectSequence: revision }
      try {
        return (await this.#link.stream.publish(subject, text ?? '', { msgID, headers: marks, expect })).seq
      } catch (error) {
        const own =
          number > 1 && this.#link.isConflict(error) ? await this.#writtenBy(subject, msgID) : undefined
        if (own === undefined) throw error
        return own
      }
    })
  }

  /** The revision of the last entry when it is the one with this id: an earlier try was stored and its answer lost. */
  async #writtenBy(subject: string, msgID: string): Promise<number | undefined> {
    const last = await this.#link.manager.streams.getMessage(`KV_${this.#name}`, { last_by_subj: subject })
    return last?.header.get('Nats-Msg-Id') === msgID ? last.seq : undefined
  }

  #open(): Promise<KV> {
    this.#opening ??= this.#create().catch(error => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async #create(): Promise<KV> {
    const { kv, jetstream } = this.#link.packages
    const { memory = false, ttlMs = 0 } = this.options
    const isNew = !(await isThere(this.#link, `KV_${this.#name}`))
    const bucket = await new kv.Kvm(this.#link.stream).create(this.#name, {
      replicas: this.#replicas,
      history: 1,
      storage: memory ? jetstream.StorageType.Memory : jetstream.StorageType.File,
      ttl: ttlMs,
      // Reads by the leader see every write that was acknowledged.
      allow_direct: false,
    })
    if (isNew) await writeDown(this.#link, `KV_${this.#name}`)
    const { config, created } = (await bucket.status()).streamInfo
    this.#created = created
    const found = { memory: config.storage === jetstream.StorageType.Memory, ttlMs: config.max_age / 1e6 }
    expectSame(`bucket ${this.#name}`, found, { memory, ttlMs })
    if (config.num_replicas < this.#replicas)
      await this.#link.manager.streams.update(config.name, { num_replicas: this.#replicas })
    return bucket
  }
}

/** Timers for values whose time may be up: servers tell nobody. */
class Expiry {
  readonly #ttlMs: number | undefined
  readonly #check: (key: string) => Promise<void>
  readonly #timers = new Map<string, NodeJS.Timeout>()

  constructor(ttlMs: number | undefined, check: (key: string) => Promise<void>) {
    this.#ttlMs = ttlMs
    this.#check = check
  }

  /** Checks a key when its time is up, and until it is gone. */
  later(key: string, since: number): void {
    if (this.#ttlMs === undefined) return
    clearTimeout(this.#timers.get(key))
    // Clocks differ, and servers take their time: at least a bit, at most a whole period.
    const left = Math.min(Math.max(since + this.#ttlMs - Date.now(), 50), this.#ttlMs)
    const timer = setTimeout(() => {
      this.#timers.delete(key)
      this.#check(key).catch(() => this.later(key, Date.now()))
    }, left).unref()
    this.#timers.set(key, timer)
  }

  forget(key: string): void {
    clearTimeout(this.#timers.get(key))
    this.#timers.delete(key)
  }

  close(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer)
  }
}
