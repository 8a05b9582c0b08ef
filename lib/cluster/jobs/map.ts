// map.ts: many jobs for all nodes: each has one result, in the order of the jobs, whatever dies meanwhile.
import {
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectSignal,
  expectText,
} from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { ControlPlane } from '../control/control-plane.js'
import { type JobBlobs, packValue } from './blobs.js'
import { expectKind, type JobDescription, type JobQueueOptions, jobPlaces, type QueuedJob } from './jobs.js'
import { Mapping } from './mapping.js'
import type { JobValue } from './pack.js'

/** Options of {@link mapJobs}. */
export interface MapOptions extends JobQueueOptions {
  /** Where long values are. Default: only those that fit in a record can be mapped. */
  readonly blobs?: JobBlobs
  /**
   * Tells runs apart: equal jobs of the same run are done once, and where their result is kept (seven days) not at all; a job that was
   * given up stays so for as long. Give a new one to measure again, or to try again. Default: ''.
   */
  readonly run?: string
  /** Who asks, for the audit logs of the nodes. */
  readonly from?: string
  /** Rejects when a job is given up; otherwise it is in `failed`. Default: true. */
  readonly strict?: boolean
  /** Ends it. Jobs that nobody began are not done any more. */
  readonly signal?: AbortSignal
  /** Told of each job that has a result or was given up. */
  readonly onProgress?: (progress: { readonly done: number; readonly total: number }) => void
}

/** A job that was given up. */
export interface FailedJob {
  /** Its index in the list. */
  readonly index: number
  /** Its kind. */
  readonly kind: string
  /** Why the last try failed. */
  readonly error: string
  /** The node of the last try, where it is known. */
  readonly node: string | undefined
}

/** What came of a list of jobs. */
export interface MapResult {
  /** Results in the order of the jobs; undefined for those that were given up. */
  readonly results: readonly JobValue[]
  /** SHA-256 of the bytes of each result. */
  readonly hashes: readonly (string | undefined)[]
  /** Jobs that each node has the counted result of. */
  readonly nodes: ReadonlyMap<string, number>
  /** Jobs that were given up. */
  readonly failed: readonly FailedJob[]
}

/**
 * Has jobs done by whichever nodes have a {@link WorkerLoop} on this queue. Ids of jobs are hashes of what they are, results are
 * stored once under them, so that workers, the caller and the servers of the control plane may be killed at any moment: run again,
 * it goes on where it was.
 * @throws SparkError ERR_ARGUMENT, ERR_RANGE for a value that is too long; ERR_IO naming a job that was given up after its last try;
 * the reason of the signal
 * @example
 * const { results } = await mapJobs(control, [1, 2, 3].map(params => ({ kind: 'square', params })))
 */
export async function mapJobs(
  control: ControlPlane,
  jobs: readonly JobDescription[],
  options: MapOptions = {},
): Promise<MapResult> {
  checkMapOptions(options)
  const { strict = true, signal } = options
  for (const { kind } of jobs) expectKind(kind)
  const queued: QueuedJob[] = []
  for (const job of jobs) queued.push(await packed(job, options))
  signal?.throwIfAborted()
  const mapping = new Mapping(jobPlaces(control, options), options)
  const failed: FailedJob[] = []
  const results: JobValue[] = []
  const hashes: (string | undefined)[] = []
  const nodes = new Map<string, number>()
  try {
    const ids = await mapping.add(queued)
    await mapping.until(ids)
    for (const [index, id] of ids.entries()) {
      const { job, record, value } = await mapping.take(id)
      if (record.state === 'failed') {
        failed.push({ index, kind: job.kind, error: record.error, node: record.node || undefined })
        results.push(undefined)
        hashes.push(undefined)
        continue
      }
      results.push(value)
      hashes.push(record.result.hash)
      nodes.set(record.node, (nodes.get(record.node) ?? 0) + 1)
    }
  } finally {
    await mapping.close()
  }
  const [first] = failed
  if (strict && first) throw givenUp(first, failed.length)
  return { results, hashes, nodes, failed }
}

/** A result of {@link streamJobs}. */
export interface StreamedResult {
  /** What the job gave. */
  readonly value: JobValue
  /** SHA-256 of its bytes. */
  readonly hash: string
  /** The node whose result counts. */
  readonly node: string
}

/** Options of {@link streamJobs}. */
export interface StreamJobsOptions extends Omit<MapOptions, 'strict' | 'onProgress'> {
  /** Jobs that are in the queue or done before the first of them was taken. Default: 64. */
  readonly ahead?: number
}

/**
 * As {@link mapJobs}, one result after the other in the order of the jobs, which are asked for as they are needed. Jobs that nobody
 * has begun when the caller stops are not done any more.
 * @throws SparkError as {@link mapJobs}
 */
export async function* streamJobs(
  control: ControlPlane,
  jobs: Iterable<JobDescription> | AsyncIterable<JobDescription>,
  options: StreamJobsOptions = {},
): AsyncGenerator<StreamedResult, void, undefined> {
  const { ahead = 64, ...given } = options
  checkMapOptions(given)
  expectInteger('options.ahead', ahead, 1, 65_536)
  const { signal } = given
  signal?.throwIfAborted()
  const mapping = new Mapping(jobPlaces(control, given), given)
  const source = iteratorOf(jobs)
  const waiting: Promise<string[]>[] = []
  let index = 0
  const next = async (): Promise<StreamedResult> => {
    const ids = await waiting.shift()!
    const { job, record, value } = await mapping.take(ids[0]!)
    const { node } = record
    if (record.state === 'failed') throw givenUp({ index, kind: job.kind, error: record.error, node }, 1)
    index++
    return { value, hash: record.result.hash, node }
  }
  let coming: Promise<IteratorResult<JobDescription>> | undefined = quiet(source.next())
  let head: Promise<StreamedResult> | undefined
  try {
    for (;;) {
      if (waiting.length > 0) head ??= quiet(next())
      if (!head && !coming) return
      const isFull = waiting.length + 1 >= ahead
      // A result that is there does not wait for jobs that are not.
      const isResult = head && (!coming || isFull || (await isFirst(head, coming)))
      if (isResult) {
        const result: StreamedResult = await head!
        head = undefined
        yield result
        continue
      }
      const step: IteratorResult<JobDescription> = await coming!
      if (!step.done) {
        expectKind(step.value.kind)
        waiting.push(quiet(mapping.add([await packed(step.value, given)])))
      }
      coming = step.done ? undefined : quiet(source.next())
    }
  } finally {
    // It may wait for something that never comes.
    quiet(source.return(undefined))
    await mapping.abandon()
    await mapping.close()
  }
}

async function* iteratorOf<T>(items: Iterable<T> | AsyncIterable<T>): AsyncGenerator<T> {
  yield* items
}

/** It rejects where it is waited for. */
function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {})
  return promise
}

/** Whether the first of two promises settles before the second, or has. */
const isFirst = (one: Promise<unknown>, other: Promise<unknown>): Promise<boolean> =>
  Promise.race([one.then(() => true), other.then(() => false)])

function checkMapOptions(options: MapOptions): void {
  const known = ['queue', 'leaseMs', 'tries', 'blobs', 'run', 'from', 'strict', 'signal', 'onProgress']
  expectKnownOptions('options', options, known)
  const { run = '', from, strict = true, signal } = options
  if (run !== '') expectText('options.run', run)
  if (from !== undefined) expectText('options.from', from)
  expectBoolean('options.strict', strict)
  expectSignal('options.signal', signal)
}

const packed = async ({ kind, params }: JobDescription, { blobs, from }: MapOptions): Promise<QueuedJob> => ({
  ...{ kind, params: await packValue(params, blobs) },
  ...(from !== undefined && { from }),
})

function givenUp({ index, kind, error, node }: FailedJob, count: number): SparkError {
  const where = node ? ` on ${node}` : ''
  const others = count > 1 ? `; ${count - 1} more were given up` : ''
  return new SparkError(
    'ERR_IO',
    `job ${index} (${kind}) was given up, its last try${where}: ${error}${others}; give another run to try again`,
  )
}
