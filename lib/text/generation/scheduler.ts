// scheduler.ts: continuous batching: requests join and leave a running batch between two steps of the model.
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import { sampleRows } from '../native-sampler.js'
import type { SampledToken, Sampler } from '../sampler.js'
import { type Batch, batchOf, type Part, type PartRows } from './batch.js'
import { BlockPool } from './block-pool.js'
import { firstParent, type RowOutput, Sequence, type TokenRequest } from './token-request.js'

/** Runs a batch: its rows by output. */
export type RunBatch = (
  batch: Batch,
  outputs: readonly RowOutput[],
) => Promise<Readonly<Partial<Record<RowOutput, Float32Array>>>>

/** What a {@link RunBatch} throws when keys and values were lost, and nothing else: all sequences are computed again. */
export class CacheLost extends Error {}

/** Limits of a {@link Scheduler}. */
export interface SchedulerLimits {
  /** Blocks of the cache. */
  readonly blocks: number
  /** Tokens of a block. */
  readonly blockSize: number
  /** Sequences of a batch at most. */
  readonly sequences: number
  /** Tokens of a batch at most: longer prompts are cut into chunks. */
  readonly tokens: number
  /** Batches that the model works on at a time, each of other sequences. Default: 1. */
  readonly batches?: number | undefined
  /** Rows of logits of a batch at most. */
  readonly rows: number
  /** Tokens of a sequence at most. */
  readonly context: number
  /** Tokens up to which rotary embeddings are those of short sequences. */
  readonly shortLength: number
}

interface Job {
  readonly sequence: Sequence
  readonly resolve: (sequence: Sequence) => void
  readonly reject: (error: unknown) => void
}

/**
 * Works on requests. Tokens of one do not depend on what else is in the batch. When the cache is full, the sequence that came last
 * gives its blocks back and is computed again later.
 */
export class Scheduler {
  readonly #run: RunBatch
  readonly #limits: SchedulerLimits
  readonly #pool: BlockPool
  readonly #reset: () => Promise<void>
  readonly #waiting: Job[] = []
  #running: Job[] = []
  /** Sequences of batches that the model works on. */
  readonly #inModel = new Set<Sequence>()
  /** Whether a batch has failed since the cache was begun: what is in it is not known. */
  #isCacheLost = false
  #loop: Promise<void> | undefined
  #isClosed = false
  /** How often the cache of the model was forgotten. */
  #resets = 0

  /** @param reset - forgets the cache of the model, after a run that failed */
  constructor(run: RunBatch, limits: SchedulerLimits, reset: () => Promise<void> = async () => undefined) {
    this.#run = run
    this.#reset = async () => {
      this.#resets++
      await reset()
    }
    this.#limits = limits
    this.#pool = new BlockPool(limits.blocks, limits.blockSize)
  }

  /** Requests that are worked on or wait. */
  get active(): number {
    return this.#running.length + this.#waiting.length
  }

  /**
   * Works on a request until its `next` says that it ends, or `maxTokens` were added.
   * @returns the sequence at its end
   * @throws SparkError ERR_RANGE for a request that is longer than the context or than the cache, with both numbers; ERR_DISPOSED.
   * The reason of the signal when it is aborted, one step later at most; what `next` throws
   */
  async submit(request: TokenRequest): Promise<Sequence> {
    this.#expectOpen()
    this.#expectFits(request)
    request.signal?.throwIfAborted()
    const sequence = new Sequence(request, this.#pool, this.#limits.shortLength)
    const done = new Promise<Sequence>((resolve, reject) => this.#waiting.push({ sequence, resolve, reject }))
    this.#loop ??= this.#work()
    return done
  }

  /** Forgets what no request uses; with no request also the cache of the model. */
  async trim(): Promise<void> {
    this.#expectOpen()
    if (this.active > 0) return this.#pool.forgetUnused()
    // Also the blocks that `withBlocksOf` and `addBlocks` hold: what they have in them is lost.
    this.#pool.forgetAll()
    await this.#reset()
  }

  /**
   * Calls `read` with the blocks of the longest known beginning of `ids`, which stay as they are meanwhile.
   * @throws SparkError ERR_DISPOSED; what `read` throws
   */
  async withBlocksOf<T>(
    ids: readonly number[],
    isLong: boolean,
    read: (blocks: readonly number[]) => Promise<T>,
  ): Promise<T> {
    this.#expectOpen()
    const { blocks } = this.#knownBlocks(ids, isLong)
    try {
      return await read(blocks)
    } finally {
      for (const block of blocks) this.#pool.release(block)
    }
  }

  /**
   * Makes blocks of `tokens` known, as many as there is memory for.
   * @param write - puts keys and values into the blocks from number `first` on; those before it are known
   * @returns tokens that are known now
   * @throws SparkError ERR_DISPOSED; what `write` throws
   */
  async addBlocks(
    tokens: readonly number[],
    isLong: boolean,
    write: (blocks: readonly number[], first: number) => Promise<void>,
  ): Promise<number> {
    this.#expectOpen()
    const [pool, size, resets] = [this.#pool, this.#limits.blockSize, this.#resets]
    let { blocks, serial } = this.#knownBlocks(tokens, isLong)
    const first = blocks.length
    try {
      while ((blocks.length + 1) * size <= tokens.length && pool.free > 0) blocks.push(pool.take()!)
      await write(blocks, first)
      // What was written may be gone with the cache.
      if (resets !== this.#resets) return 0
      for (let i = first; i < blocks.length; i++)
        serial = pool.name(blocks[i]!, serial, tokens.slice(i * size, (i + 1) * size))
      return blocks.length * size
    } finally {
      for (const block of blocks) pool.release(block)
    }
  }

  /** The blocks that tokens begin with: none while what the cache has in it is not known. */
  #knownBlocks(tokens: readonly number[], isLong: boolean): { blocks: number[]; serial: number } {
    const parent = firstParent(isLong)
    return this.#isCacheLost ? { blocks: [], serial: parent } : this.#pool.findAll(parent, tokens)
  }

  /** Ends all requests with ERR_DISPOSED. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#loop
  }

  #expectOpen(): void {
    if (this.#isClosed) throw new SparkError('ERR_DISPOSED', 'the model has been disposed')
  }

  #expectFits({ ids, maxTokens }: TokenRequest): void {
    const { context, blocks, blockSize } = this.#limits
    const total = ids.length + maxTokens
    const text = `${ids.length} tokens and ${maxTokens} new ones`
    if (total > context)
      throw new SparkError(
        'ERR_RANGE',
        `${text} are more than the context of ${context}: shorten the text, or lower maxTokens`,
      )
    if (Math.ceil(total / blockSize) > blocks)
      throw new SparkError(
        'ERR_RANGE',
        `${text} do not fit into the cache of ${blocks * blockSize}: load the model with more cacheTokens`,
      )
  }

  async #work(): Promise<void> {
    // What is submitted in the same turn joins the first batch.
    await undefined
    const pacer = new Pacer()
    const steps = new Set<Promise<void>>()
    while (this.active > 0 || this.#isCacheLost) {
      // Steps of small models do not leave the JavaScript thread.
      await pacer.pause()
      if (this.#isCacheLost) {
        await Promise.all(steps)
        await this.#beginAnew()
      }
      this.#removeAborted()
      if (this.#isClosed) this.#endAll()
      this.#admit()
      const parts = this.#plan()
      if (parts.length > 0) {
        const step: Promise<void> = this.#step(parts).finally(() => steps.delete(step))
        steps.add(step)
      }
      const isFull = parts.length === 0 || steps.size === this.#batches
      if (isFull && steps.size > 0) await Promise.race(steps)
    }
    this.#loop = undefined
  }

  get #batches(): number {
    return this.#limits.batches ?? 1
  }

  /** Jobs whose sequences are in no batch now. */
  get #idle(): Job[] {
    return [...this.#running, ...this.#waiting].filter(({ sequence }) => !this.#inModel.has(sequence))
  }

  #endAll(): void {
    for (const job of this.#idle)
      this.#finish(job, () => job.reject(new SparkError('ERR_DISPOSED', 'the model has been disposed')))
  }

  #removeAborted(): void {
    for (const job of this.#idle) {
      const { signal } = job.sequence.request
      if (signal?.aborted) this.#finish(job, () => job.reject(signal.reason))
    }
  }

  #admit(): void {
    while (this.#waiting.length > 0 && this.#running.length < this.#limits.sequences) {
      const [job] = this.#waiting
      job!.sequence.begin()
      const first = Math.min(job!.sequence.pending, this.#limits.tokens)
      if (!job!.sequence.reserve(first)) {
        job!.sequence.release()
        return
      }
      this.#running.push(this.#waiting.shift()!)
    }
  }

  /**
   * What each sequence contributes: first those that wait for one token, then chunks of prompts. Batches that run at the same time
   * share the sequences.
   */
  #plan(): Part[] {
    const parts: Part[] = []
    let tokens = this.#limits.tokens
    let rows = this.#limits.rows
    const share = Math.ceil(this.#running.length / this.#batches)
    const order = this.#running
      .filter(({ sequence }) => !this.#inModel.has(sequence))
      .sort((a, b) => Number(a.sequence.pending > 1) - Number(b.sequence.pending > 1))
    for (const { sequence } of order) {
      if (parts.length === share) break
      if (!this.#running.some(job => job.sequence === sequence)) continue
      const wanted = sequence.request.rows === 'all' ? rows : tokens
      const count = Math.min(sequence.pending, tokens, wanted)
      if (count === 0 || !this.#reserved(sequence, count, parts)) continue
      parts.push({ sequence, count })
      tokens -= count
      if (sequence.request.rows === 'all') rows -= count
    }
    return parts
  }

  /** Reserves memory, if need be that of sequences that came later. */
  #reserved(sequence: Sequence, count: number, parts: readonly Part[]): boolean {
    while (!sequence.reserve(count)) {
      const last = this.#running.findLast(
        job => !this.#inModel.has(job.sequence) && parts.every(part => part.sequence !== job.sequence),
      )
      if (!last || last.sequence === sequence) return false
      last.sequence.release()
      this.#running = this.#running.filter(job => job !== last)
      this.#waiting.unshift(last)
    }
    return true
  }

  async #step(parts: readonly Part[]): Promise<void> {
    const batch = batchOf(parts)
    const outputs = [...new Set(parts.map(({ sequence }) => sequence.request.output))]
    for (const { sequence } of parts) this.#inModel.add(sequence)
    try {
      const results = await this.#run(batch, outputs)
      const tokens = await sampledTokens(batch.rows, results.logits)
      const total = batch.rows.reduce((sum, { count }) => sum + count, 0)
      let row = 0
      for (const rows of batch.rows) {
        const values = results[rows.part.sequence.request.output]!
        const width = values.length / total
        this.#take(rows, values.subarray(row * width, (row + rows.count) * width), width, tokens.get(rows))
        row += rows.count
      }
    } catch (error) {
      if (!(error instanceof CacheLost)) for (const { sequence } of parts) this.#fail(sequence, error)
      this.#isCacheLost = true
    } finally {
      for (const { sequence } of parts) this.#inModel.delete(sequence)
    }
  }

  /** What a run that failed has written is not known: all others are computed again. */
  async #beginAnew(): Promise<void> {
    this.#isCacheLost = false
    for (const job of this.#running) job.sequence.release()
    this.#waiting.unshift(...this.#running)
    this.#running = []
    this.#pool.forgetAll()
    try {
      await this.#reset()
    } catch (error) {
      for (const job of this.#waiting.splice(0)) job.reject(error)
    }
  }

  /** Gives a sequence its rows, which may end it. */
  #take(
    { part, count, first }: PartRows,
    rows: Float32Array,
    width: number,
    token: SampledToken | SparkError | undefined,
  ): void {
    const { sequence } = part
    const { request } = sequence
    const isLast = sequence.pending === part.count
    sequence.commit(part.count)
    if (count === 0) return
    try {
      if (token instanceof SparkError) throw token
      const id = request.next(rows, width, first, token)
      if (!isLast) return
      if (id !== undefined) sequence.append(id)
      if (id === undefined || sequence.added >= request.maxTokens) this.#end(sequence)
    } catch (error) {
      this.#fail(sequence, error)
    }
  }

  #jobOf(sequence: Sequence): Job | undefined {
    return this.#running.find(job => job.sequence === sequence)
  }

  #end(sequence: Sequence): void {
    const job = this.#jobOf(sequence)
    if (job) this.#finish(job, () => job.resolve(sequence))
  }

  #fail(sequence: Sequence, error: unknown): void {
    const job = this.#jobOf(sequence)
    if (job) this.#finish(job, () => job.reject(error))
  }

  #finish(job: Job, tell: () => void): void {
    job.sequence.release()
    this.#running = this.#running.filter(other => other !== job)
    const index = this.#waiting.indexOf(job)
    if (index >= 0) this.#waiting.splice(index, 1)
    tell()
  }
}

/** What samplers choose from their rows of logits, or why they cannot. */
async function sampledTokens(
  parts: readonly PartRows[],
  logits: Float32Array | undefined,
): Promise<ReadonlyMap<PartRows, SampledToken | SparkError>> {
  const total = parts.reduce((sum, { count }) => sum + count, 0)
  if (!logits || total === 0) return new Map()
  const width = logits.length / total
  const sampled: { readonly rows: PartRows; readonly sampler: Sampler; readonly at: number }[] = []
  let row = 0
  for (const rows of parts) {
    const { sampler } = rows.part.sequence.request
    if (sampler && rows.count === 1) sampled.push({ rows, sampler, at: row })
    row += rows.count
  }
  const chosen = sampled.length === total ? logits : new Float32Array(sampled.length * width)
  if (chosen !== logits)
    for (const [i, { at }] of sampled.entries())
      chosen.set(logits.subarray(at * width, (at + 1) * width), i * width)
  const tokens = await sampleRows(
    sampled.map(({ sampler }) => sampler),
    chosen,
  )
  return new Map(sampled.map(({ rows }, i) => [rows, tokens[i]!]))
}
