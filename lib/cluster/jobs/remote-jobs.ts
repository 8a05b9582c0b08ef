// remote-jobs.ts: the jobs of another node's control plane over a link, where the nodes have none in common.
import { setTimeout as sleep } from 'node:timers/promises'
import { argumentError, expectInteger, expectOneOf } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { digest } from '../../io/content-hash.js'
import type { ControlPlane, Job, JsonValue, KvEntry, PullOptions } from '../control/control-plane.js'
import { conflict, isConflict } from '../control/names.js'
import type { FrameStream } from '../links/frame-stream.js'
import {
  expectKind,
  type JobPlaces,
  type JobQueueOptions,
  jobPlaces,
  parseJob,
  parseRecord,
  type WorkerPlaces,
} from './jobs.js'

/** What jobs travel over. */
export type JobLink = Pick<FrameStream, 'call' | 'handle' | 'closed' | 'peer'>

/** Milliseconds that one question for a job waits, and those that its answer may take longer. */
const [maxWaitMs, answerMs] = [2000, 10_000]
/** Jobs that one node may have, and kinds that it may ask for. */
const [maxTaken, maxKinds] = [256, 64]
/** Bytes of a job that fit in an answer. */
const maxJobBytes = 60 << 10

const settlements = ['ack', 'nack', 'extend'] as const

/**
 * Hands jobs of a control plane to the node at the other end of a link, and takes its results. When the link ends its jobs go to
 * others at once.
 * @param options - as those of `mapJobs`
 */
export function shareJobs(link: FrameStream, control: ControlPlane, options: JobQueueOptions = {}): void {
  const host = new JobHost(jobPlaces(control, options))
  link.handle('jobs.pull', params => host.pull(params))
  link.handle('jobs.settle', params => host.settle(params))
  link.handle('jobs.result', params => host.result(params))
  link.handle('jobs.look', params => host.look(params))
  link.handle('jobs.error', params => host.error(params, link.peer.nodeId))
  void link.closed.then(() => host.close())
}

/** A job that the other node has. */
interface TakenJob {
  readonly job: Job
  /** When its lease is over, unless it is extended. */
  until: number
}

/** Answers the questions of one link. */
class JobHost {
  readonly #places: JobPlaces
  readonly #taken = new Map<number, TakenJob>()
  readonly #kinds = new Set<string>()
  readonly #ending = new AbortController()
  #next = 1

  constructor(places: JobPlaces) {
    this.#places = places
  }

  async pull(params: unknown): Promise<JsonValue> {
    const { kinds, waitMs } = fieldsOf(params)
    expectInteger('waitMs', waitMs, 0, maxWaitMs)
    this.#expectKinds(kinds)
    this.#expectFew()
    const { signal } = this.#ending
    const given: JsonValue[] = []
    for (const job of await this.#places.pull(kinds, { waitMs, signal })) {
      const { id, payload, delivery } = job
      const isLong = Buffer.byteLength(JSON.stringify(payload)) > maxJobBytes
      if (isLong) debug(`job ${id} is too long for a link: it is for nodes with the control plane`)
      if (isLong || signal.aborted) {
        await job.nack()
        continue
      }
      const token = this.#next++
      this.#taken.set(token, { job, until: performance.now() + this.#places.leaseMs })
      given.push({ token, id, payload, delivery })
    }
    return given
  }

  /** A node has few kinds, and the control plane keeps a queue for each. */
  #expectKinds(kinds: unknown): asserts kinds is string[] {
    if (!Array.isArray(kinds) || kinds.length === 0 || kinds.length > maxKinds)
      throw argumentError('kinds', `a list of 1 to ${maxKinds}`, kinds)
    for (const kind of kinds) expectKind(kind)
    const all = new Set([...this.#kinds, ...kinds])
    if (all.size > maxKinds)
      throw new SparkError('ERR_RANGE', `a node may ask for ${maxKinds} kinds of jobs over a link`)
    for (const kind of kinds) this.#kinds.add(kind)
  }

  /** Others have those whose lease is over by now. */
  #expectFew(): void {
    if (this.#taken.size < maxTaken) return
    const now = performance.now()
    for (const [token, { until }] of this.#taken) if (until < now) this.#taken.delete(token)
    if (this.#taken.size >= maxTaken) throw new SparkError('ERR_BUSY', `this node has ${maxTaken} jobs`)
  }

  async settle(params: unknown): Promise<JsonValue> {
    const { token, how } = fieldsOf(params)
    expectOneOf('how', how, settlements)
    const taken = this.#taken.get(token as number)
    if (!taken) return null
    if (how === 'extend') taken.until = performance.now() + this.#places.leaseMs
    else this.#taken.delete(token as number)
    await taken.job[how]()
    return null
  }

  #hasTaken(id: string): boolean {
    for (const { job } of this.#taken.values()) if (job.id === id) return true
    return false
  }

  /** Stores a result of a job that the other node has; false where there is one already. */
  async result(params: unknown): Promise<JsonValue> {
    const { id, record } = fieldsOf(params)
    const parsed = parseRecord(record as JsonValue)
    if (!parsed) throw argumentError('record', 'what came of a job', record)
    if (!this.#hasTaken(idOf(id))) return false
    try {
      await this.#places.results.create(idOf(id), parsed)
      return true
    } catch (error) {
      if (isConflict(error)) return false
      throw error
    }
  }

  /** What is known of a job; takes a note that nobody wants it away. */
  async look(params: unknown): Promise<JsonValue> {
    const id = idOf(fieldsOf(params).id)
    const { results, unwanted } = this.#places
    const [record, note] = [await results.get(id), await unwanted.get(id)]
    return { record: record?.value ?? null, unwanted: note !== undefined }
  }

  async error(params: unknown, node: string): Promise<JsonValue> {
    const { id, error } = fieldsOf(params)
    if (!this.#hasTaken(idOf(id))) return null
    await this.#places.errors.put(idOf(id), { error: String(error).slice(0, 2000), node, delivery: 0 })
    return null
  }

  close(): void {
    this.#ending.abort()
    for (const { job } of this.#taken.values()) job.nack().catch(error => debug((error as Error).message))
    this.#taken.clear()
  }
}

function fieldsOf(params: unknown): Readonly<Record<string, unknown>> {
  if (typeof params !== 'object' || params === null) throw argumentError('params', 'an object', params)
  return params as Readonly<Record<string, unknown>>
}

function idOf(id: unknown): string {
  if (typeof id !== 'string' || id.length !== digest('').length || !/^[0-9a-f]+$/.test(id))
    throw argumentError('id', 'that of a job', id)
  return id
}

/**
 * The jobs of the node at the other end of a link, which calls {@link shareJobs}.
 * @example
 * const worker = new WorkerLoop(new RemoteJobs(link), { node: nodeId, handlers })
 */
export class RemoteJobs {
  readonly #link: JobLink

  constructor(link: JobLink) {
    this.#link = link
  }

  /** @internal */
  places({ leaseMs = 30_000, tries = 5 }: JobQueueOptions): WorkerPlaces {
    const ask = (method: string, params: unknown, timeoutMs = answerMs): Promise<unknown> =>
      this.#link.call(`jobs.${method}`, params, { timeoutMs })
    const look = async (id: string) =>
      (await ask('look', { id })) as { readonly record: JsonValue; readonly unwanted: boolean }
    const entry = (key: string, value: JsonValue): KvEntry => ({ key, value, revision: 0 })
    return {
      leaseMs,
      tries,
      pull: (kinds, options) => this.#pull(kinds, options),
      results: {
        get: async id => {
          const { record } = await look(id)
          return record === null ? undefined : entry(id, record)
        },
        create: async (id, record) => {
          if ((await ask('result', { id, record })) === true) return 0
          throw conflict(`job ${id} has a result`)
        },
      },
      errors: {
        put: async (id, note) => {
          await ask('error', { id, error: fieldsOf(note).error })
          return 0
        },
      },
      // The caller of the map takes its own notes away.
      unwanted: {
        get: async id => ((await look(id)).unwanted ? entry(id, true) : undefined),
        delete: async () => {},
      },
    }
  }

  async #pull(kinds: readonly string[], { waitMs = 0, signal }: PullOptions): Promise<Job[]> {
    const giveUp = performance.now() + waitMs
    for (;;) {
      const left = Math.max(0, Math.min(maxWaitMs, giveUp - performance.now()))
      const began = performance.now()
      const params = { kinds, waitMs: Math.floor(left) }
      const answer = await this.#link.call('jobs.pull', params, { timeoutMs: left + answerMs })
      if (!Array.isArray(answer)) throw new SparkError('ERR_FORMAT', 'the other node sent no jobs')
      const jobs = answer.map(job => this.#jobOf(job))
      if (signal?.aborted) await Promise.all(jobs.map(job => job.nack()))
      else if (jobs.length > 0) return jobs
      if (signal?.aborted || performance.now() >= giveUp) return []
      // One that does not wait is not asked all the time.
      if (performance.now() - began < 10) await sleep(100, undefined, signal && { signal }).catch(() => {})
    }
  }

  #jobOf(answer: unknown): Job {
    const { token, id, payload, delivery } = fieldsOf(answer)
    expectInteger('delivery', delivery, 1)
    const settle = async (how: (typeof settlements)[number]): Promise<void> => {
      await this.#link.call('jobs.settle', { token, how }, { timeoutMs: answerMs })
    }
    if (!parseJob(payload as JsonValue)) throw new SparkError('ERR_FORMAT', 'the other node sent no job')
    return {
      id: idOf(id),
      payload: payload as JsonValue,
      delivery,
      ack: () => settle('ack'),
      nack: () => settle('nack'),
      extend: () => settle('extend'),
    }
  }
}
