// chunk-transfer.ts: chunks from several sources at a time: each gives as fast as it can, and what one cannot give another does.
import { SparkError } from '../../core/errors.js'
import { type FileManifest, rangeOf } from './manifest.js'
import type { ChunkSource } from './sources.js'
import type { WeightStore } from './weight-store.js'

/** Requests that a source has at a time: at first, and when it is fast. */
const [firstDepth, maxDepth] = [2, 8]
/** Milliseconds between two looks at sources that stall and at chunks that another source would give sooner. */
const lookEvery = 250

/** What became of a source. */
export interface SourceReport {
  /** Its name. */
  readonly name: string
  /** Bytes of verified chunks that it gave. */
  readonly bytes: number
  /** Why it was dropped: it sent other bytes, it vanished, it stalled. Undefined where it was not. */
  readonly dropped: string | undefined
}

/** What a transfer takes. */
export interface ChunkTransferOptions {
  /** Milliseconds in which a chunk must arrive, or its source is dropped. */
  readonly stallMs: number
  readonly signal: AbortSignal | undefined
  /** A chunk was verified and is on the disk. */
  readonly onChunk: (bytes: number) => void
}

interface Request {
  readonly index: number
  readonly since: number
  readonly cancel: AbortController
}

/** A source during a transfer. */
class Giver {
  readonly source: ChunkSource
  readonly has = new Set<number>()
  readonly requests = new Map<number, Request>()
  depth = firstDepth
  bytes = 0
  /** Milliseconds that a chunk took, the last ones weighing most. */
  pace = Number.POSITIVE_INFINITY
  dropped: string | undefined

  constructor(source: ChunkSource) {
    this.source = source
  }

  took(milliseconds: number, bytes: number): void {
    this.bytes += bytes
    this.pace = Number.isFinite(this.pace) ? 0.7 * this.pace + 0.3 * milliseconds : milliseconds
    if (milliseconds < 1000 && this.depth < maxDepth) this.depth++
    else if (milliseconds > 4000 && this.depth > 1) this.depth--
  }
}

/** One transfer of missing chunks of a file into a store. */
export class ChunkTransfer {
  readonly #manifest: FileManifest
  readonly #store: WeightStore
  readonly #options: ChunkTransferOptions
  readonly #givers: readonly Giver[]
  readonly #todo: Set<number>
  /** Chunks that have not arrived, those under way included. */
  readonly #missing: Set<number>
  readonly #failure = new AbortController()
  readonly #done: Promise<void>
  #resolve!: () => void
  #reject!: (error: unknown) => void
  /** Requests, those included whose chunks are being written. */
  readonly #pending = new Set<Promise<void>>()
  /** Sources that have not said what they have. */
  #asking = 0

  constructor(
    manifest: FileManifest,
    missing: readonly number[],
    sources: readonly ChunkSource[],
    store: WeightStore,
    options: ChunkTransferOptions,
  ) {
    this.#manifest = manifest
    this.#store = store
    this.#options = options
    this.#givers = sources.map(source => new Giver(source))
    this.#todo = new Set(missing)
    this.#missing = new Set(missing)
    this.#done = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  /** What became of the sources. */
  get reports(): SourceReport[] {
    return this.#givers.map(({ source, bytes, dropped }) => ({ name: source.name, bytes, dropped }))
  }

  /**
   * Fetches the chunks.
   * @throws SparkError ERR_IO where no source has a chunk, or the disk is full; the reason of the signal
   */
  async run(): Promise<void> {
    const { signal } = this.#options
    signal?.throwIfAborted()
    if (this.#missing.size === 0) return
    const stop = (): void => this.#fail(signal!.reason)
    signal?.addEventListener('abort', stop)
    const timer = setInterval(() => this.#look(), lookEvery)
    try {
      const indices = [...this.#todo]
      const asking = this.#givers.map(giver => this.#ask(giver, indices))
      void Promise.all(asking).then(() => this.#expectGivers())
      await this.#done
    } finally {
      clearInterval(timer)
      signal?.removeEventListener('abort', stop)
      this.#failure.abort(new SparkError('ERR_IO', 'the transfer has ended'))
      await Promise.all(this.#pending)
    }
  }

  async #ask(giver: Giver, indices: readonly number[]): Promise<void> {
    this.#asking++
    const hashes = indices.map(index => this.#manifest.chunks[index]!)
    const limit = AbortSignal.any([this.#failure.signal, AbortSignal.timeout(this.#options.stallMs)])
    try {
      const has = await abortable(giver.source.have(hashes, limit), limit)
      for (const [i, index] of indices.entries()) if (has[i] === true) giver.has.add(index)
    } catch (error) {
      this.#drop(giver, messageOf(error))
    } finally {
      this.#asking--
    }
    this.#fillAll()
  }

  /** Sources that are asked last wait until the others have said what they have. */
  #fillAll(): void {
    if (this.#failure.signal.aborted) return
    for (const giver of this.#givers) this.#fill(giver)
    this.#expectGivers()
  }

  #fill(giver: Giver): void {
    while (giver.dropped === undefined && giver.requests.size < giver.depth) {
      const index = this.#nextFor(giver)
      if (index === undefined) return
      this.#todo.delete(index)
      this.#start(giver, index)
    }
  }

  #nextFor(giver: Giver): number | undefined {
    const isLast = giver.source.last === true
    if (isLast && this.#asking > 0) return undefined
    for (const index of this.#todo) {
      if (giver.has.has(index) && !(isLast && this.#othersHave(index))) return index
    }
    return undefined
  }

  #othersHave(index: number): boolean {
    return this.#givers.some(
      other => other.source.last !== true && other.dropped === undefined && other.has.has(index),
    )
  }

  #start(giver: Giver, index: number): void {
    const request = this.#request(giver, index).finally(() => this.#pending.delete(request))
    this.#pending.add(request)
  }

  async #request(giver: Giver, index: number): Promise<void> {
    const hash = this.#manifest.chunks[index]!
    const { begin, end } = rangeOf(this.#manifest, index)
    const request = { index, since: performance.now(), cancel: new AbortController() }
    giver.requests.set(index, request)
    const signal = AbortSignal.any([this.#failure.signal, request.cancel.signal])
    try {
      const bytes = await abortable(giver.source.get(hash, end - begin, signal), signal)
      if (bytes === undefined) giver.has.delete(index)
      else await this.#arrived(giver, request, hash, bytes)
    } catch (error) {
      if (!signal.aborted) this.#drop(giver, messageOf(error))
    } finally {
      giver.requests.delete(index)
      if (this.#missing.has(index) && !this.#isUnderWay(index)) this.#todo.add(index)
      this.#fillAll()
    }
  }

  /** Checks a chunk and keeps it. */
  async #arrived(giver: Giver, { index, since }: Request, hash: string, bytes: Uint8Array): Promise<void> {
    const took = performance.now() - since
    try {
      await this.#store.write(hash, bytes)
    } catch (error) {
      if (!(error instanceof SparkError && error.code === 'ERR_FORMAT')) this.#fail(error)
      else this.#drop(giver, `it sent other bytes as chunk ${index} of ${this.#manifest.name}`)
      return
    }
    if (!this.#missing.delete(index)) return
    this.#todo.delete(index)
    giver.took(took, bytes.byteLength)
    for (const other of this.#givers) {
      if (other !== giver) other.requests.get(index)?.cancel.abort()
    }
    this.#options.onChunk(bytes.byteLength)
    if (this.#missing.size === 0) this.#resolve()
  }

  #isUnderWay(index: number): boolean {
    return this.#givers.some(({ requests }) => requests.has(index))
  }

  /** Drops sources that stall; lets a source that has nothing to do give what another one is slow with. */
  #look(): void {
    const now = performance.now()
    for (const giver of this.#givers) {
      const oldest = Math.min(...[...giver.requests.values()].map(({ since }) => since))
      if (now - oldest > this.#options.stallMs)
        this.#drop(giver, `it sent no chunk for ${this.#options.stallMs} ms`)
    }
    this.#fillAll()
    if (this.#todo.size > 0) return
    for (const giver of this.#givers) {
      if (giver.dropped !== undefined || giver.requests.size > 0 || giver.source.last) continue
      const slow = this.#givers.flatMap(other => (other === giver ? [] : [...other.requests.values()]))
      const late = slow.find(({ index, since }) => giver.has.has(index) && now - since > 2 * giver.pace)
      if (late) this.#start(giver, late.index)
    }
  }

  #drop(giver: Giver, why: string): void {
    if (giver.dropped !== undefined || this.#failure.signal.aborted) return
    giver.dropped = why
    for (const { cancel } of giver.requests.values()) cancel.abort()
  }

  /** Ends the transfer where nobody can give what is missing. */
  #expectGivers(): void {
    if (this.#asking > 0 || this.#missing.size === 0 || this.#failure.signal.aborted) return
    const lost = [...this.#todo]
      .sort((a, b) => a - b)
      .find(index => !this.#givers.some(({ dropped, has }) => dropped === undefined && has.has(index)))
    if (lost === undefined) return
    const reasons = this.#givers.map(({ source, dropped }) => `${source.name}: ${dropped ?? 'it has it not'}`)
    const why = reasons.length > 0 ? reasons.join('; ') : 'there is no source'
    const count = `${this.#missing.size} chunks of ${this.#manifest.name} are missing`
    this.#fail(new SparkError('ERR_IO', `${count}, and nobody has chunk ${lost} (${why})`))
  }

  #fail(error: unknown): void {
    if (this.#failure.signal.aborted) return
    this.#failure.abort(error)
    this.#reject(error)
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Waits for work or a signal: a source need not heed it. */
async function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  let stop = (): void => {}
  const ended = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop)
  })
  try {
    return await Promise.race([work, ended])
  } finally {
    signal.removeEventListener('abort', stop)
    work.catch(() => {})
  }
}
