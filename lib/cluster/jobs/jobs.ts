// jobs.ts: jobs that any node may do, and where their results are.
import { argumentError } from '../../core/checks.js'
import { digest } from '../../io/content-hash.js'
import type {
  ControlPlane,
  Job,
  JsonValue,
  KeyValue,
  PullOptions,
  WorkQueue,
} from '../control/control-plane.js'
import { isPacked, type PackedValue } from './blobs.js'
import type { JobValue } from './pack.js'

/** What is to be done: a kind that the nodes know, and what it takes. No code travels. */
export interface JobDescription {
  /** Which handler does it, such as `model.run`. */
  readonly kind: string
  /** What the handler takes. */
  readonly params: JobValue
}

/** What a handler is told besides what it takes. */
export interface JobContext {
  /** Aborted when the worker ends. */
  readonly signal: AbortSignal
}

/**
 * Does the jobs of a kind. A job may be done more than once, of which one result counts: so its result depends on what it takes
 * only.
 */
export type JobHandler = (params: JobValue, context: JobContext) => Promise<JobValue> | JobValue

/** Handlers by kind. */
export type JobHandlers = Readonly<Record<string, JobHandler>>

/** How a queue of jobs is kept. All who open it give the same. */
export interface JobQueueOptions {
  /** Name of the queue. Default: work. */
  readonly queue?: string
  /** Milliseconds in which a worker gives a sign of life, or its job is handed out again. Default 30,000. */
  readonly leaseMs?: number
  /** How often a job is tried. Default 5. */
  readonly tries?: number
}

/** A job as the queue has it. */
export type QueuedJob = {
  readonly kind: string
  readonly params: PackedValue
  /** Who asked, for audit logs. */
  readonly from?: string
}

/** What came of a job, as the control plane has it; the first one that is stored counts. */
export type JobRecord =
  | { readonly state: 'done'; readonly result: PackedValue; readonly node: string; readonly delivery: number }
  | { readonly state: 'failed'; readonly error: string; readonly node: string; readonly delivery: number }

/** What a worker needs of where jobs, their results and notes on them are. */
export interface WorkerPlaces {
  /** The next job of any of these kinds, which are those that a worker can do; none where none came. */
  readonly pull: (kinds: readonly string[], options: PullOptions) => Promise<Job[]>
  /** Records by the id of the job. */
  readonly results: Pick<KeyValue, 'get' | 'create'>
  /** Why a try of a job failed, by its id. */
  readonly errors: Pick<KeyValue, 'put'>
  /** Jobs that nobody waits for any more. */
  readonly unwanted: Pick<KeyValue, 'get' | 'delete'>
  readonly leaseMs: number
  readonly tries: number
}

/** Where jobs, their results and notes on them are. */
export interface JobPlaces extends WorkerPlaces {
  /** The queue of a kind. */
  readonly queue: (kind: string) => WorkQueue
  readonly results: KeyValue
  readonly errors: KeyValue
  readonly unwanted: KeyValue
}

/** The places of a queue. @throws SparkError ERR_ARGUMENT */
export function jobPlaces(control: ControlPlane, options: JobQueueOptions): JobPlaces {
  const { queue = 'work', leaseMs = 30_000, tries = 5 } = options
  const queueOf = (kind: string): WorkQueue => {
    expectKind(kind)
    return control.queue(`${queue}-${kind.replaceAll('.', '_')}`, {
      ackWaitMs: leaseMs,
      maxDeliveries: tries,
    })
  }
  let turn = 0
  return {
    queue: queueOf,
    pull: (kinds, options) => {
      const first = turn++ % kinds.length
      return pullAny([...kinds.slice(first), ...kinds.slice(0, first)].map(queueOf), options)
    },
    results: control.kv('job-results'),
    errors: control.kv('job-errors'),
    unwanted: control.kv('job-unwanted'),
    leaseMs,
    tries,
  }
}

/** One job that is there, or else the first one that comes. */
async function pullAny(queues: readonly WorkQueue[], { signal, waitMs = 0 }: PullOptions): Promise<Job[]> {
  for (const queue of queues) {
    const jobs = await queue.pull()
    if (jobs.length > 0 || signal?.aborted) return jobs
  }
  if (waitMs === 0) return []
  const first = new AbortController()
  const ended = AbortSignal.any([...(signal ? [signal] : []), first.signal])
  const pulls = queues.map(async queue => {
    const jobs = await queue.pull({ waitMs, signal: ended })
    if (jobs.length > 0) first.abort()
    return jobs
  })
  const outcomes = await Promise.allSettled(pulls)
  const [job, ...others] = outcomes.flatMap(outcome => (outcome.status === 'fulfilled' ? outcome.value : []))
  // Of other kinds, which came at the same moment.
  await Promise.all(others.map(other => other.nack()))
  if (job) return [job]
  const failure = outcomes.find(({ status }) => status === 'rejected') as PromiseRejectedResult | undefined
  if (failure) throw failure.reason
  return []
}

/** Throws ERR_ARGUMENT for what is no name of a kind. */
export function expectKind(kind: unknown): asserts kind is string {
  if (typeof kind !== 'string' || !/^[a-z][a-z\d]*([.-][a-z\d]+)*$/.test(kind) || kind.length > 60)
    throw argumentError('kind', "lower-case words with dots between, such as 'model.run'", kind)
}

/** The id of a job: equal jobs have the same. @param run - tells those apart that are to be done again */
export const jobId = ({ kind, params }: QueuedJob, run: string): string =>
  digest(JSON.stringify([kind, params.hash, run]))

/** A job that came out of a queue; undefined for something else. */
export function parseJob(value: JsonValue): QueuedJob | undefined {
  const { kind, params, from } = (value ?? {}) as Partial<QueuedJob>
  if (typeof kind !== 'string' || !isPacked(params)) return undefined
  return { kind, params, ...(typeof from === 'string' && { from: from.slice(0, 100) }) }
}

/** What came of a job; undefined for something else. */
export function parseRecord(value: JsonValue | undefined): JobRecord | undefined {
  const record = (value ?? {}) as Partial<Record<string, unknown>>
  const { state, node, delivery } = record
  if (typeof node !== 'string' || !Number.isSafeInteger(delivery)) return undefined
  const isDone = state === 'done' && isPacked(record.result)
  const isFailed = state === 'failed' && typeof record.error === 'string'
  return isDone || isFailed ? (record as JobRecord) : undefined
}
