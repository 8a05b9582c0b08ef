// nats.ts: the control plane of several machines, in the servers of NATS JetStream.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { JsMsg } from '@nats-io/jetstream'
import { expectInteger, expectKnownOptions } from '../../core/checks.js'
import { debug } from '../../core/log.js'
import type { NodeCredentials } from '../trust/credentials.js'
import { Arrivals } from './arrivals.js'
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
  Subscription,
  WorkQueue,
} from './control-plane.js'
import { maxWaitingMessages } from './embedded.js'
import { failedMs } from './embedded-queue.js'
import { Leases } from './lease.js'
import {
  bucketOptions,
  closedError,
  expectSame,
  expectSubject,
  parsePayload,
  payloadText,
  queueOptions,
} from './names.js'
import type { NatsAddress } from './nats-address.js'
import { failedBucket } from './nats-config.js'
import { NatsLink, reading, retryMs } from './nats-connection.js'
import { NatsBucket } from './nats-kv.js'
import { NatsQueue } from './nats-queue.js'
import { logStream, logStreamName, logSubject, type NatsStream, workStream } from './nats-streams.js'

/** How to reach a cluster, and how large it is. */
export interface NatsOptions extends NatsAddress {
  /** Servers of the cluster: 1 by default. Three and more keep everything three times; two have no quorum. */
  readonly members?: number
  /** How long a request may take, changes of leaders included: 15,000 ms by default. */
  readonly timeoutMs?: number
}

/** How often it is asked whether writes would be acknowledged. */
const probeEveryMs = 5000
/** How long closing waits for leases to be given up. */
const releaseMs = 2000

/**
 * A control plane that outlives machines: with three servers or more, every decision that was acknowledged is on most of them.
 * @example
 * const server = await NatsServer.start({ credentials, folder, nodes, listen: { host: '0.0.0.0', port: 4222 } })
 * const plane = await NatsControlPlane.connect({ servers: [server.address], credentials })
 */
export class NatsControlPlane implements ControlPlane {
  /** Where it keeps what it holds. */
  readonly kind = 'nats'
  /** Decisions. */
  readonly log: DecisionLog
  /** Messages. */
  readonly bus: Bus
  readonly #link: NatsLink
  readonly #members: number
  readonly #closing = new AbortController()
  readonly #buckets = new Map<string, NatsBucket>()
  readonly #queues = new Map<string, NatsQueue>()
  readonly #leases = new Leases(() => this.kv('leases'))
  readonly #work: NatsStream
  readonly #probe: NodeJS.Timeout
  #hasLeader = true
  #isConnected = true
  #closed: Promise<void> | undefined

  private constructor(link: NatsLink, members: number, decisions: NatsStream, work: NatsStream) {
    this.#link = link
    this.#members = members
    this.#work = work
    this.log = new NatsLog(link, decisions, this.#closing.signal)
    this.bus = new NatsBus(link, this.#closing.signal)
    void this.#listen()
    this.#probe = setInterval(() => void this.#look(), probeEveryMs).unref()
  }

  /**
   * Connects, and makes the streams where there are none.
   * @throws SparkError ERR_DENIED where a certificate is the reason; ERR_IO where no server answers, or most are not up;
   * ERR_UNSUPPORTED naming the packages to install; ERR_ARGUMENT
   */
  static async connect(options: NatsOptions): Promise<NatsControlPlane> {
    expectKnownOptions('options', options, ['servers', 'credentials', 'policy', 'members', 'timeoutMs'])
    const { members = 1, timeoutMs = 15_000 } = options
    expectInteger('members', members, 1, 1000)
    expectInteger('timeoutMs', timeoutMs, 100)
    const link = await NatsLink.open(options, timeoutMs)
    try {
      const replicas = replicasOf(members)
      const [decisions, work] = [logStream(link, replicas), workStream(link, replicas)]
      for (const stream of [decisions, work])
        await link.persist('the streams of the cluster', () => stream.open())
      return new NatsControlPlane(link, members, decisions, work)
    } catch (error) {
      await link.connection.close()
      throw error
    }
  }

  /** Who must agree, and whether they can at present. */
  get quorum(): Quorum {
    const isUp = this.#hasLeader && this.#isConnected
    return { ...quorumOf(this.#members), writable: isUp }
  }

  kv(name: string, options?: BucketOptions): KeyValue {
    return this.#bucket(name, bucketOptions(name, options))
  }

  queue(name: string, options?: QueueOptions): WorkQueue {
    const complete = queueOptions(name, options)
    if (this.#closing.signal.aborted) throw closedError()
    const open = this.#queues.get(name)
    if (open) {
      expectSame(`queue ${name}`, open.options, complete)
      return open
    }
    const failed = this.#bucket(failedBucket, { ttlMs: failedMs })
    const places = { link: this.#link, stream: this.#work, failed, replicas: replicasOf(this.#members) }
    const queue = new NatsQueue(name, complete, places, this.#closing.signal)
    this.#queues.set(name, queue)
    return queue
  }

  lease(name: string, holder: string, ttlMs: number): LeaseRequest {
    return this.#leases.request(name, holder, ttlMs)
  }

  /**
   * The server that decides on the log at present: the id of its node; undefined while there is none, and of a single server.
   * @throws SparkError ERR_IO
   */
  async leader(): Promise<string | undefined> {
    const info = () => this.#link.manager.streams.info(logStreamName)
    return (await this.#link.persist('the leader', info)).cluster?.leader || undefined
  }

  /** Whether a server answers at present, whatever it says. */
  async answers(): Promise<boolean> {
    try {
      await this.#link.manager.streams.info(logStreamName)
      return true
    } catch (error) {
      return error instanceof this.#link.packages.jetstream.JetStreamApiError
    }
  }

  /** Goes on with the next certificate of the node: its connection is made anew. */
  renew(credentials: NodeCredentials): Promise<void> {
    return this.#link.renew(credentials)
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    clearInterval(this.#probe)
    // Leases that cannot be given up end by themselves.
    const limit = sleep(this.#isConnected ? releaseMs : 0, undefined, { ref: false })
    await Promise.race([this.#leases.close(), limit])
    this.#closing.abort()
    await this.#link.connection.close()
  }

  #bucket(name: string, options: BucketOptions): NatsBucket {
    if (this.#closing.signal.aborted) throw closedError()
    const open = this.#buckets.get(name)
    if (open) {
      expectSame(`bucket ${name}`, open.options, options)
      return open
    }
    const bucket = new NatsBucket(name, options, this.#link, replicasOf(this.#members), this.#closing.signal)
    this.#buckets.set(name, bucket)
    return bucket
  }

  async #listen(): Promise<void> {
    for await (const { type } of this.#link.connection.status()) {
      if (type === 'disconnect') this.#isConnected = false
      if (type !== 'reconnect') continue
      this.#isConnected = true
      this.#link.reconnected()
    }
    this.#isConnected = false
  }

  async #look(): Promise<void> {
    try {
      const { cluster } = await this.#link.manager.streams.info(logStreamName)
      // A single server has no leader.
      this.#hasLeader = cluster === undefined || this.#members < 3 || Boolean(cluster.leader)
    } catch {
      this.#hasLeader = false
    }
  }
}

/** How often everything is kept. Two copies would need both servers for each write, which is worse than one. */
export const replicasOf = (members: number): number => (members >= 3 ? 3 : 1)

/** What the number of servers means, told honestly. */
export function quorumOf(members: number): Omit<Quorum, 'writable'> {
  const replicas = replicasOf(members)
  if (replicas === 1) {
    const start = members === 2 ? 'two nodes have no quorum: the first one' : 'there is no quorum: one server'
    const note = `${start} alone has the state; while it is away nothing can be written, and when its disk is lost, so is the state; three nodes or more would keep it`
    return { members, needed: 1, note }
  }
  const note = `three of ${members} nodes have each part of the state: it can be written while two of the three are up, and is lost only with all three`
  return { members, needed: 2, note }
}

class NatsLog implements DecisionLog {
  readonly #link: NatsLink
  readonly #stream: NatsStream
  readonly #closing: AbortSignal

  constructor(link: NatsLink, stream: NatsStream, closing: AbortSignal) {
    this.#link = link
    this.#stream = stream
    this.#closing = closing
  }

  async append(record: JsonValue, expect?: number): Promise<number> {
    const text = payloadText('record', record)
    if (expect !== undefined) expectInteger('expect', expect, 0)
    const msgID = randomUUID()
    const condition = expect === undefined ? {} : { expect: { lastSequence: expect } }
    return this.#link.persist('a record of the log', async number => {
      await this.#stream.open()
      try {
        return (await this.#link.stream.publish(logSubject, text, { msgID, ...condition })).seq
      } catch (error) {
        // An earlier try may have been stored and its answer lost.
        const isMaybeOurs = number > 1 && expect !== undefined && this.#link.isConflict(error)
        if (isMaybeOurs && (await this.#idOf(expect + 1)) === msgID) return expect + 1
        throw error
      }
    })
  }

  async #idOf(seq: number): Promise<string | undefined> {
    const found = await this.#link.manager.streams.getMessage(logStreamName, { seq })
    return found?.header.get('Nats-Msg-Id')
  }

  async *read(from: number): AsyncIterable<LogRecord> {
    expectInteger('from', from, 0)
    const { last_seq } = await this.#link.persist('the log', async () => {
      await this.#stream.open()
      return (await this.#link.manager.streams.info(logStreamName)).state
    })
    if (last_seq < Math.max(from, 1)) return
    const stop = new AbortController()
    for await (const found of this.follow(from, stop.signal)) {
      yield found
      if (found.seq >= last_seq) return
    }
    if (this.#closing.aborted) throw closedError()
  }

  async *follow(from: number, signal: AbortSignal): AsyncIterable<LogRecord> {
    expectInteger('from', from, 0)
    const ended = AbortSignal.any([signal, this.#closing])
    let next = Math.max(from, 1)
    for (let isFirst = true; !ended.aborted; isFirst = false) {
      const connection = new AbortController()
      const off = this.#link.onReconnect(() => connection.abort())
      try {
        for await (const record of this.#from(next, AbortSignal.any([ended, connection.signal]))) {
          yield record
          next = record.seq + 1
          if (ended.aborted) return
        }
        if (!connection.signal.aborted) return
      } catch (error) {
        if (isFirst) throw error
        debug(`nats: ${(error as Error).message}`)
        await sleep(retryMs, undefined, { signal: ended }).catch(() => {})
      } finally {
        off()
      }
    }
  }

  /** Records from one on, until the signal. */
  async *#from(first: number, ended: AbortSignal): AsyncIterable<LogRecord> {
    const { DeliverPolicy } = this.#link.packages.jetstream
    const start = { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: first }
    const messages = await this.#link.persist('the log', async () => {
      await this.#stream.open()
      return (await this.#link.stream.consumers.get(logStreamName, start)).consume(reading)
    })
    const stop = (): void => void messages.close().catch(() => {})
    ended.addEventListener('abort', stop)
    try {
      if (ended.aborted) return
      for await (const message of messages as AsyncIterable<JsMsg>) {
        yield { seq: message.seq, record: message.json<JsonValue>() }
        if (ended.aborted) return
      }
    } finally {
      ended.removeEventListener('abort', stop)
      stop()
    }
  }
}

const busPrefix = 'BUS.'

class NatsBus implements Bus {
  readonly #link: NatsLink
  readonly #closing: AbortSignal

  constructor(link: NatsLink, closing: AbortSignal) {
    this.#link = link
    this.#closing = closing
  }

  async publish(subject: string, payload: JsonValue): Promise<void> {
    expectSubject(subject, false)
    const text = payloadText('payload', payload)
    if (this.#closing.aborted) throw closedError()
    this.#link.connection.publish(`${busPrefix}${subject}`, text)
  }

  subscribe(pattern: string, signal: AbortSignal): Subscription {
    expectSubject(pattern, true)
    if (this.#closing.aborted) throw closedError()
    const messages = new Arrivals<BusMessage>([signal, this.#closing], { limit: maxWaitingMessages })
    const subscription = this.#link.connection.subscribe(`${busPrefix}${pattern}`, {
      callback: (error, message) => {
        // What is no JSON does not come from a control plane.
        const payload = error ? undefined : parsePayload(message.string())
        if (payload !== undefined)
          messages.push({ subject: message.subject.slice(busPrefix.length), payload })
      },
    })
    const stop = (): void => subscription.unsubscribe()
    signal.addEventListener('abort', stop, { once: true })
    if (signal.aborted) stop()
    const ready = this.#link.connection.flush()
    // Who does not wait for it need not hear that the server was away; the subscription is made again with the connection.
    ready.catch(() => {})
    return Object.assign(messages, { ready })
  }
}
