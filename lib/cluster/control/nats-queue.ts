// nats-queue.ts: a work queue in JetStream: one stream for all queues, a subject for each job, a consumer for each queue.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Msg, Subscription } from '@nats-io/transport-node'
import type {
  Job,
  JsonValue,
  KeyValue,
  PullOptions,
  PushOptions,
  QueueOptions,
  WorkQueue,
} from './control-plane.js'
import { closedError, expectName, isName, parsePayload, payloadText, pullOptions } from './names.js'
import { type NatsLink, retryMs } from './nats-connection.js'
import { type NatsStream, workStreamName } from './nats-streams.js'

/** How long one request for jobs stays with the server. */
const requestMs = 5000
/** What a request for jobs is answered with where its consumer was deleted, meanwhile or before. */
const noConsumerCodes: readonly number[] = [409, 503]
/** What the server answers where a job with this id is in the queue. */
const isThereCode = 10077

/** Where a queue is. */
export interface QueuePlaces {
  readonly link: NatsLink
  /** Its jobs. */
  readonly stream: NatsStream
  /** Jobs that were handed out too often. */
  readonly failed: KeyValue
  readonly replicas: number
}

/** A queue. */
export class NatsQueue implements WorkQueue {
  readonly options: Required<QueueOptions>
  readonly #name: string
  readonly #link: NatsLink
  readonly #stream: NatsStream
  readonly #failed: KeyValue
  readonly #replicas: number
  readonly #closing: AbortSignal
  #opening: Promise<unknown> | undefined

  constructor(name: string, options: Required<QueueOptions>, places: QueuePlaces, closing: AbortSignal) {
    this.#name = name
    this.options = options
    this.#link = places.link
    this.#stream = places.stream
    this.#failed = places.failed
    this.#replicas = places.replicas
    this.#closing = closing
    this.#link.onReconnect(() => {
      this.#opening = undefined
    })
  }

  async push(id: string, payload: JsonValue, { again = false }: PushOptions = {}): Promise<boolean> {
    expectName('id', id)
    const text = payloadText('payload', payload)
    // The stream has one message of a subject at a time anyway.
    const msgID = again ? randomUUID() : `${this.#name}.${id}`
    const subject = `${workStreamName}.${this.#name}.${id}`
    return this.#link.persist(`job ${id}`, async number => {
      await this.#stream.open()
      try {
        const { duplicate } = await this.#link.stream.publish(subject, text, { msgID })
        // Of a later try: the first one was stored, and its answer lost.
        return !duplicate || number > 1
      } catch (error) {
        if ((error as { code?: unknown }).code === isThereCode) return false
        throw error
      }
    })
  }

  async pull(options?: PullOptions): Promise<Job[]> {
    const { max, waitMs, signal } = pullOptions(options)
    const giveUp = performance.now() + waitMs
    for (let waits = false; ; waits = true) {
      if (this.#closing.aborted) throw closedError()
      await this.#open()
      const left = Math.min(giveUp - performance.now(), requestMs)
      // At first what there is; then one, as soon as it comes.
      const messages = waits ? await this.#ask(1, left, signal) : await this.#ask(max, 0, signal)
      const jobs: Job[] = []
      for (const message of messages) if (await this.#isGood(message)) jobs.push(this.#jobOf(message))
      if (jobs.length > 0 || signal?.aborted || performance.now() >= giveUp) return jobs
    }
  }

  async failed(): Promise<{ id: string; payload: JsonValue }[]> {
    const prefix = `${this.#name}.`
    const found: { id: string; payload: JsonValue }[] = []
    for (const key of await this.#failed.keys()) {
      const entry = key.startsWith(prefix) ? await this.#failed.get(key) : undefined
      if (entry) found.push({ id: key.slice(prefix.length), payload: entry.value })
    }
    return found
  }

  /** Asks for jobs. @param waitMs - 0 for what there is */
  async #ask(max: number, waitMs: number, signal?: AbortSignal): Promise<Msg[]> {
    const { connection, packages, inboxPrefix } = this.#link
    const inbox = packages.transport.createInbox(inboxPrefix)
    const subscription = connection.subscribe(inbox)
    const limit = setTimeout(() => subscription.unsubscribe(), waitMs + 2000)
    const stop = (): void => subscription.unsubscribe()
    for (const ended of [signal, this.#closing]) ended?.addEventListener('abort', stop)
    try {
      if (signal?.aborted || this.#closing.aborted) return []
      const request =
        waitMs > 0 ? { batch: max, expires: Math.ceil(waitMs) * 1e6 } : { batch: max, no_wait: true }
      const subject = `$JS.API.CONSUMER.MSG.NEXT.${workStreamName}.${this.#name}`
      connection.publish(subject, JSON.stringify(request), { reply: inbox })
      const { messages, hasConsumer } = await this.#collect(subscription, max)
      const isEnded = signal?.aborted || this.#closing.aborted
      // A server that was killed, or whose disk was full, may come back without the consumer: it is made again.
      if (!hasConsumer && !isEnded) {
        this.#opening = undefined
        await sleep(retryMs, undefined, { signal: this.#closing }).catch(() => {})
      }
      return messages
    } finally {
      clearTimeout(limit)
      for (const ended of [signal, this.#closing]) ended?.removeEventListener('abort', stop)
      subscription.unsubscribe()
    }
  }

  /** What is answered. Some servers say nothing where there is no consumer. */
  async #collect(
    subscription: Subscription,
    max: number,
  ): Promise<{ messages: Msg[]; hasConsumer: boolean }> {
    const messages: Msg[] = []
    let hasConsumer = false
    for await (const message of subscription as AsyncIterable<Msg>) {
      const code = message.headers?.code ?? 0
      hasConsumer = !noConsumerCodes.includes(code)
      // Without a payload and with a code: nothing there, or no more.
      if (message.headers?.hasError || code >= 100) break
      messages.push(message)
      if (messages.length === max || deliveryOf(message).pending === 0) break
    }
    return { messages, hasConsumer }
  }

  /** Puts a job aside that was handed out too often, and removes what did not come from {@link push}. */
  async #isGood(message: Msg): Promise<boolean> {
    if (!isName(this.#idOf(message)) || parsePayload(message.string()) === undefined) {
      await this.#finish(message)
      return false
    }
    if (deliveryOf(message).count <= this.options.maxDeliveries) return true
    await this.#failed.put(`${this.#name}.${this.#idOf(message)}`, message.json<JsonValue>())
    await this.#finish(message)
    return false
  }

  #idOf(message: Msg): string {
    return message.subject.slice(`${workStreamName}.${this.#name}.`.length)
  }

  #jobOf(message: Msg): Job {
    const expectOpen = (): void => {
      if (this.#closing.aborted) throw closedError()
    }
    return {
      id: this.#idOf(message),
      payload: message.json<JsonValue>(),
      delivery: deliveryOf(message).count,
      ack: async () => this.#finish(message),
      nack: async () => {
        expectOpen()
        this.#link.connection.publish(message.reply!, '-NAK')
      },
      extend: async () => {
        expectOpen()
        this.#link.connection.publish(message.reply!, '+WPI')
      },
    }
  }

  async #finish(message: Msg): Promise<void> {
    await this.#link.persist(`job ${this.#idOf(message)}`, async () => {
      await this.#link.connection.request(message.reply!, '+ACK', { timeout: 2000 })
    })
  }

  #open(): Promise<unknown> {
    this.#opening ??= this.#create().catch(error => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async #create(): Promise<unknown> {
    const { AckPolicy } = this.#link.packages.jetstream
    return this.#link.persist(`queue ${this.#name}`, async () => {
      await this.#stream.open()
      return this.#link.manager.consumers.add(workStreamName, {
        durable_name: this.#name,
        ack_policy: AckPolicy.Explicit,
        ack_wait: this.options.ackWaitMs * 1e6,
        max_deliver: -1,
        max_ack_pending: 10_000,
        filter_subject: `${workStreamName}.${this.#name}.*`,
        num_replicas: this.#replicas,
      })
    })
  }
}

/** How often a message was handed out, and how many wait behind it: words of the subject that it is acknowledged on. */
function deliveryOf({ reply = '' }: Msg): { count: number; pending: number } {
  // $JS.ACK.[domain.account.]stream.consumer.delivered.seq.seq.time.pending[.token]
  const words = reply.split('.')
  const at = words.length >= 11 ? 6 : 4
  return { count: Number(words[at]), pending: Number(words[at + 4]) }
}
