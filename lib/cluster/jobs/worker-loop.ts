// worker-loop.ts: a node that takes jobs whenever it is free: fast ones take more of them.
import { setTimeout as sleep } from 'node:timers/promises'
import { argumentError, expectInteger, expectKnownOptions, expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { ControlPlane, Job } from '../control/control-plane.js'
import { isConflict } from '../control/names.js'
import type { PressureGate } from '../devices/pressure-gate.js'
import { isLost, type JobBlobs, packValue, unpackValue } from './blobs.js'
import {
  type JobHandlers,
  type JobQueueOptions,
  type JobRecord,
  jobPlaces,
  parseJob,
  parseRecord,
  type WorkerPlaces,
} from './jobs.js'
import { RemoteJobs } from './remote-jobs.js'

/** Options of {@link WorkerLoop}. */
export interface WorkerOptions extends JobQueueOptions {
  /** Name of this node in results and messages. */
  readonly node: string
  /** What it can do. */
  readonly handlers: JobHandlers
  /** Jobs at a time. Default 1. */
  readonly slots?: number
  /** Where long values are. Default: only those that fit in a record can be done. */
  readonly blobs?: JobBlobs
  /** No job is taken while it is closed. */
  readonly gate?: Pick<PressureGate, 'pass' | 'isClosed'> | null
  /** Told of each job that this node did. */
  readonly onJob?: (job: WorkerEvent) => void
}

/** A job that a worker is done with. */
export interface WorkerEvent {
  /** Its id. */
  readonly id: string
  /** `stored`; `known`: another one was sooner; `failed`: it is tried again or given up; `differs`: another one had another result. */
  readonly outcome: 'stored' | 'known' | 'failed' | 'differs'
  /** Milliseconds that the handler took. */
  readonly ms: number
  /** Its kind. */
  readonly kind: string
  /** Bytes of the result. */
  readonly bytes: number
  /** Who asked, where that was said. */
  readonly from: string | undefined
}

/** Milliseconds that one request for a job waits, and between two tries of a control plane that does not answer. */
const [pullMs, retryMs] = [5000, 250]
/** Characters of a message that are kept. */
const maxMessage = 2000

/**
 * Does the jobs of a queue until it is closed. Results are stored before a job leaves the queue, and only the first result of a
 * job is kept: killed at any moment, nothing is lost and nothing is there twice.
 * @example
 * const worker = new WorkerLoop(control, { node: 'spark-1', handlers: { square: n => Number(n) ** 2 } })
 * await worker.close()
 */
export class WorkerLoop implements AsyncDisposable {
  readonly #places: WorkerPlaces
  readonly #options: WorkerOptions
  readonly #ending = new AbortController()
  /** Rejects when the worker ends: a handler need not heed its signal. */
  readonly #ended: Promise<never>
  readonly #slots: Promise<void>[]

  /**
   * Begins to take jobs.
   * @param control - where they are: a control plane of this node, or that of another one
   * @throws SparkError ERR_ARGUMENT
   */
  constructor(control: ControlPlane | RemoteJobs, options: WorkerOptions) {
    const known = ['node', 'handlers', 'slots', 'blobs', 'gate', 'onJob', 'queue', 'leaseMs', 'tries']
    expectKnownOptions('options', options, known)
    const { node, handlers, slots = 1 } = options
    expectText('options.node', node)
    expectInteger('options.slots', slots, 1, 1024)
    if (Object.keys(handlers).length === 0) throw argumentError('options.handlers', 'at least one', handlers)
    for (const [kind, handler] of Object.entries(handlers))
      if (typeof handler !== 'function')
        throw argumentError(`options.handlers['${kind}']`, 'a function', handler)
    this.#options = options
    this.#places = control instanceof RemoteJobs ? control.places(options) : jobPlaces(control, options)
    const { signal } = this.#ending
    this.#ended = new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    this.#ended.catch(() => {})
    this.#slots = Array.from({ length: slots }, () => this.#work())
  }

  /** Ends: jobs that run are aborted, and others do them. */
  async close(): Promise<void> {
    this.#ending.abort(new SparkError('ERR_DISPOSED', 'the worker was closed'))
    await Promise.all(this.#slots)
  }

  /** As {@link close}. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #work(): Promise<void> {
    const { signal } = this.#ending
    while (!signal.aborted) {
      try {
        await this.#options.gate?.pass(signal)
        const kinds = Object.keys(this.#options.handlers)
        for (const job of await this.#places.pull(kinds, { waitMs: pullMs, signal })) await this.#keep(job)
      } catch (error) {
        if (error instanceof SparkError && error.code === 'ERR_DISPOSED') return
        debug(`worker ${this.#options.node}: ${(error as Error).message}`)
        await sleep(retryMs, undefined, { signal }).catch(() => {})
      }
    }
  }

  /** Does a job and keeps it meanwhile. */
  async #keep(job: Job): Promise<void> {
    const keeping = setInterval(() => {
      job.extend().catch(error => debug((error as Error).message))
    }, this.#places.leaseMs / 3)
    try {
      await this.#do(job)
    } finally {
      clearInterval(keeping)
    }
  }

  async #do(job: Job): Promise<void> {
    const { results, unwanted } = this.#places
    // It was closed while the job came: another node may do it now.
    if (this.#options.gate?.isClosed) return job.nack()
    if (await results.get(job.id)) return job.ack()
    if (await unwanted.get(job.id)) {
      await job.ack()
      return unwanted.delete(job.id)
    }
    const began = performance.now()
    const done = await this.#run(job, this.#ending.signal)
    const record = typeof done === 'string' ? undefined : done
    const outcome = record ? await this.#store(job, record) : 'failed'
    if (done === 'again') await job.nack()
    else await job.ack()
    const { kind = '', from } = parseJob(job.payload) ?? {}
    const bytes = record?.state === 'done' ? record.result.bytes : 0
    this.#options.onJob?.({ id: job.id, outcome, ms: performance.now() - began, kind, bytes, from })
    // Another node may be able to do what this one is not.
    if (!record)
      await sleep(retryMs * job.delivery, undefined, { signal: this.#ending.signal }).catch(() => {})
  }

  /**
   * What came of a job. `again`: it is to be tried again; `gone`: what it takes is nowhere, as whoever asked was killed, and adds it
   * again where it goes on.
   */
  async #run(job: Job, signal: AbortSignal): Promise<JobRecord | 'again' | 'gone'> {
    const { node, handlers, blobs, gate } = this.#options
    const { delivery } = job
    let isGone = false
    try {
      const queued = parseJob(job.payload)
      if (!queued) throw new SparkError('ERR_FORMAT', 'it is no job')
      const handler = Object.hasOwn(handlers, queued.kind) ? handlers[queued.kind] : undefined
      if (!handler)
        throw new SparkError('ERR_UNSUPPORTED', `node ${node} has no handler of kind '${queued.kind}'`)
      const params = await unpackValue(queued.params, blobs, signal).catch(async error => {
        isGone = blobs !== undefined && (await isLost(queued.params, blobs, signal))
        throw error
      })
      const value = await Promise.race([handler(params, { signal }), this.#ended])
      return { state: 'done', result: await packValue(value, blobs), node, delivery }
    } catch (error) {
      if (signal.aborted) return 'again'
      const message = (error instanceof Error ? error.message : String(error)).slice(0, maxMessage)
      if (delivery >= this.#places.tries && !gate?.isClosed && !isGone)
        return { state: 'failed', error: message, node, delivery }
      await this.#places.errors.put(job.id, { error: message, node, delivery })
      return isGone && delivery >= this.#places.tries ? 'gone' : 'again'
    }
  }

  /** Stores what came of a job, unless another one was sooner. Tries until the control plane answers. */
  async #store(job: Job, record: JobRecord): Promise<WorkerEvent['outcome']> {
    for (;;) {
      try {
        await this.#places.results.create(job.id, record)
        return record.state === 'failed' ? 'failed' : 'stored'
      } catch (error) {
        if (isConflict(error)) return this.#known(job, record)
        if (this.#ending.signal.aborted) throw error
        debug(`result of job ${job.id}: ${(error as Error).message}`)
        await sleep(retryMs, undefined, { signal: this.#ending.signal }).catch(() => {})
      }
    }
  }

  async #known(job: Job, record: JobRecord): Promise<WorkerEvent['outcome']> {
    const kept = parseRecord((await this.#places.results.get(job.id))?.value)
    const isOther =
      kept?.state === 'done' && record.state === 'done' && kept.result.hash !== record.result.hash
    if (!isOther) return 'known'
    debug(`job ${job.id} has another result on ${kept.node} than on ${record.node}; the first one counts`)
    return 'differs'
  }
}
