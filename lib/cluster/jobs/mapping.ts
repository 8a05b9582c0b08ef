// mapping.ts: jobs that a caller waits for: added to the queue once, and heard of until each has a record.
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { isConflict } from '../control/names.js'
import { fetchValue, isLost, type JobBlobs, unpackValue } from './blobs.js'
import { type JobPlaces, type JobRecord, jobId, parseRecord, type QueuedJob } from './jobs.js'
import type { JobValue } from './pack.js'

/** Milliseconds between two looks at what is missing, and until a job that nobody has heard of is added again. */
const [lookMs, againMs] = [500, 15_000]
/** Jobs that are added, and long results that are fetched, at a time. */
const [pushes, fetches] = [16, 4]
/** Milliseconds from the start in which nodes with results may still become known. */
const arrivalMs = 3000

/** What a {@link Mapping} is told besides its jobs. */
export interface MappingOptions {
  readonly run?: string
  readonly blobs?: JobBlobs
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: { readonly done: number; readonly total: number }) => void
}

interface MappedJob {
  readonly job: QueuedJob
  users: number
  /** How often it was not in the queue, and was added. */
  adds: number
  /** Why its last result is none, where it was lost. */
  lost?: { readonly error: string; readonly node: string }
}

type DoneRecord = Extract<JobRecord, { readonly state: 'done' }>

/** What came of a job. */
export interface Outcome {
  readonly job: QueuedJob
  readonly record: JobRecord
  /** Undefined where it was given up. */
  readonly value: JobValue
}

/** The jobs of one caller. */
export class Mapping {
  readonly #places: JobPlaces
  readonly #options: MappingOptions
  readonly #jobs = new Map<string, MappedJob>()
  /** Of jobs whose results are here. */
  readonly #records = new Map<string, JobRecord>()
  /** Those whose results are being fetched. */
  readonly #coming = new Set<string>()
  readonly #fetches = new Set<Promise<void>>()
  readonly #waiting: (() => void)[] = []
  #fetching = 0
  readonly #ended = new AbortController()
  readonly #following: Promise<void>
  readonly #wake = (): void => this.#awake()
  #awake = (): void => {}
  #isDone = (): boolean => true
  #again = performance.now() + againMs
  #scan = performance.now() + lookMs
  readonly #arrived = performance.now() + arrivalMs

  /** Begins to hear of results. */
  constructor(places: JobPlaces, options: MappingOptions) {
    this.#places = places
    this.#options = options
    options.signal?.addEventListener('abort', this.#wake)
    this.#following = this.#follow()
  }

  /**
   * Adds jobs to the queue, those that it has, or that have a result, excepted.
   * @returns the id of each, in order; equal jobs have the same
   * @throws SparkError; the reason of the signal
   */
  async add(jobs: readonly QueuedJob[]): Promise<string[]> {
    const ids = jobs.map(job => jobId(job, this.#options.run ?? ''))
    for (const [i, id] of ids.entries()) {
      const known = this.#jobs.get(id)
      if (known) known.users++
      else this.#jobs.set(id, { job: jobs[i]!, users: 1, adds: 0 })
    }
    await this.#add([...new Set(ids)])
    return ids
  }

  /** Waits until jobs have records. @throws SparkError; the reason of the signal */
  async until(ids: readonly string[]): Promise<void> {
    this.#isDone = () => ids.every(id => this.#records.has(id))
    while (!this.#isDone()) {
      await this.#pause()
      this.#options.signal?.throwIfAborted()
      if (this.#isDone()) return
      if (performance.now() >= this.#scan) {
        await this.#patiently(() => this.#giveUp())
        this.#scan = performance.now() + lookMs
      }
      if (performance.now() < this.#again) continue
      // Each is still in the queue, unless it was lost: adding one that is there does nothing.
      await this.#add(this.#missing)
      this.#again = performance.now() + againMs
    }
  }

  /**
   * What came of a job, when it is there; it is forgotten when all who added it have taken it.
   * @throws SparkError; the reason of the signal
   */
  async take(id: string): Promise<Outcome> {
    const known = this.#jobs.get(id)!
    for (;;) {
      await this.until([id])
      const record = this.#records.get(id)!
      const value = await this.#valueOf(id, record)
      // It was lost after it was fetched.
      if (!this.#records.has(id)) continue
      if (--known.users === 0) {
        this.#jobs.delete(id)
        this.#records.delete(id)
      }
      return { job: known.job, record, value }
    }
  }

  /** Ends it. Marks jobs that nobody has begun, so that they are not done for nothing, where the signal was aborted. */
  async close(): Promise<void> {
    if (this.#options.signal?.aborted) await this.abandon()
    this.#options.signal?.removeEventListener('abort', this.#wake)
    this.#ended.abort()
    await Promise.all([this.#following, ...this.#fetches])
  }

  /** Marks jobs that nobody has begun: they are not done any more. */
  async abandon(): Promise<void> {
    const mark = async (id: string): Promise<unknown> => this.#places.unwanted.put(id, true)
    await Promise.all(this.#missing.map(mark)).catch(error => debug((error as Error).message))
  }

  /** Hears of results as they are stored. */
  async #follow(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      try {
        for await (const { key, value } of this.#places.results.watch(this.#ended.signal))
          this.#settle(key, parseRecord(value))
      } catch (error) {
        debug(`results: ${(error as Error).message}`)
      }
      await sleep(lookMs, undefined, { signal: this.#ended.signal }).catch(() => {})
    }
  }

  #settle(id: string, record: JobRecord | undefined): void {
    if (!record || !this.#jobs.has(id) || this.#records.has(id) || this.#coming.has(id)) return
    const isHere = record.state === 'failed' || record.result.inline !== undefined || !this.#options.blobs
    if (isHere) {
      this.#keep(id, record)
      return
    }
    this.#coming.add(id)
    const fetching = this.#inTurn(() => this.#fetch(id, record))
      .catch(error => debug((error as Error).message))
      .finally(() => this.#fetches.delete(fetching))
    this.#fetches.add(fetching)
  }

  #keep(id: string, record: JobRecord): void {
    this.#records.set(id, record)
    this.#options.onProgress?.({ done: this.#records.size, total: this.#jobs.size })
    if (this.#isDone()) this.#wake()
  }

  /** Brings a long result here while there is a node that has it; otherwise its job is done again. */
  async #fetch(id: string, record: DoneRecord): Promise<void> {
    const blobs = this.#options.blobs!
    const { signal } = this.#ended
    for (;;) {
      const isLate = performance.now() >= this.#arrived
      const problem = await fetchValue(record.result, blobs, signal).then(
        () => undefined,
        error => error as Error,
      )
      signal.throwIfAborted()
      const isGone = problem !== undefined && (await isLost(record.result, blobs, signal))
      if (isGone && !isLate) {
        await sleep(lookMs, undefined, { signal })
        continue
      }
      this.#coming.delete(id)
      // Whoever takes it hears of another problem, such as a disk that is full.
      return isGone ? this.#repeat(id, record, problem.message) : this.#keep(id, record)
    }
  }

  async #valueOf(id: string, record: JobRecord): Promise<JobValue> {
    if (record.state === 'failed') return undefined
    const { blobs, signal } = this.#options
    try {
      return await unpackValue(record.result, blobs, signal)
    } catch (error) {
      signal?.throwIfAborted()
      if (!blobs || !(await isLost(record.result, blobs, this.#ended.signal))) throw error
      this.#records.delete(id)
      await this.#repeat(id, record, (error as Error).message)
    }
  }

  /** Has a job done again whose result is nowhere. */
  async #repeat(id: string, record: DoneRecord, why: string): Promise<void> {
    const { results } = this.#places
    this.#jobs.get(id)!.lost = { error: `its result was lost: ${why}`, node: record.node }
    await this.#patiently(async () => {
      const there = await results.get(id)
      // Another caller may have had it done again.
      if (there && isDeepStrictEqual(there.value, record))
        await results.delete(id, there.revision).catch(ignoreConflict)
    })
    await this.#addOne(id)
  }

  /** So many at a time. */
  async #inTurn(act: () => Promise<void>): Promise<void> {
    while (this.#fetching >= fetches) await new Promise<void>(resolve => this.#waiting.push(resolve))
    this.#fetching++
    try {
      await act()
    } finally {
      this.#fetching--
      this.#waiting.shift()?.()
    }
  }

  get #missing(): string[] {
    return [...this.#jobs.keys()].filter(id => !this.#records.has(id))
  }

  async #add(ids: readonly string[]): Promise<void> {
    const left = [...ids]
    const work = async (): Promise<void> => {
      for (let id = left.shift(); id !== undefined; id = left.shift()) await this.#addOne(id)
    }
    await Promise.all(Array.from({ length: Math.min(pushes, left.length) }, work))
  }

  async #addOne(id: string): Promise<void> {
    const { results, unwanted, queue, tries } = this.#places
    await this.#patiently(async () => {
      const known = this.#jobs.get(id)
      if (!known || this.#records.has(id)) return
      const there = parseRecord((await results.get(id))?.value)
      if (there) return this.#settle(id, there)
      if (await unwanted.get(id)) await unwanted.delete(id)
      // It has no result, so where it left the queue nobody does it: it was not wanted for a while, or what it took or gave was lost.
      const isNew = await queue(known.job.kind).push(id, known.job, { again: true })
      if (isNew && ++known.adds > tries) await this.#drop(id, known)
    })
  }

  /** Gives up a job that was added often enough; a new call may try again. */
  async #drop(id: string, { adds, lost }: MappedJob): Promise<void> {
    await this.#places.unwanted.put(id, true)
    const { error = 'it left the queue', node = '' } = lost ?? (await this.#noteOf(id))
    this.#keep(id, { state: 'failed', error: `${error} (${adds - 1} times)`, node, delivery: adds - 1 })
  }

  /** Why the last try of a job failed, where a node has said so. */
  async #noteOf(id: string): Promise<{ error?: string; node?: string }> {
    return ((await this.#places.errors.get(id))?.value ?? {}) as { error?: string; node?: string }
  }

  /** Repeats what a control plane does not answer, until the signal. */
  async #patiently<T>(act: () => Promise<T>): Promise<T> {
    for (;;) {
      this.#options.signal?.throwIfAborted()
      this.#ended.signal.throwIfAborted()
      try {
        return await act()
      } catch (error) {
        if (!(error instanceof SparkError && error.code === 'ERR_IO')) throw error
        debug(error.message)
        await sleep(lookMs, undefined, { signal: this.#options.signal ?? this.#ended.signal }).catch(() => {})
      }
    }
  }

  #pause(): Promise<void> {
    return new Promise(resolve => {
      const timer = setTimeout(resolve, lookMs)
      this.#awake = () => {
        clearTimeout(timer)
        resolve()
      }
      if (this.#isDone() || this.#options.signal?.aborted) this.#awake()
    })
  }

  /** Records those that were handed out too often without an answer: whoever took them died of them, or was killed. */
  async #giveUp(): Promise<void> {
    const kinds = new Set(this.#missing.map(id => this.#jobs.get(id)!.job.kind))
    for (const kind of kinds) {
      for (const { id } of await this.#places.queue(kind).failed()) {
        if (!this.#jobs.has(id) || this.#records.has(id)) continue
        const { tries } = this.#places
        const { error = `its worker ended ${tries} times before it had a result`, node = '' } =
          await this.#noteOf(id)
        const record: JobRecord = { state: 'failed', error, node, delivery: tries }
        await this.#places.results.create(id, record).catch(() => {})
        this.#settle(id, parseRecord((await this.#places.results.get(id))?.value))
      }
    }
  }
}

function ignoreConflict(error: unknown): void {
  if (!isConflict(error)) throw error
}
