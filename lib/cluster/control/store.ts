// store.ts: the state of an embedded control plane, and the group commit that makes its changes durable before they show.
import { SparkError } from '../../core/errors.js'
import type { JsonValue, KvChange } from './control-plane.js'
import type { Journal } from './journal.js'
import { closedError } from './names.js'

/** A change as the journal has it: a value, a deletion, a record of the log. */
type Change =
  | readonly ['put', bucket: string, key: string, revision: number, value: JsonValue]
  | readonly ['del', bucket: string, key: string, revision: number]
  | readonly ['log', seq: number, record: JsonValue]

/** A value: as text, so that nobody shares an object with the store. */
export interface Stored {
  readonly text: string
  readonly revision: number
  /** When it was written, or read from the disk, by the clock of this process. */
  readonly since: number
}

/** What is staged of a batch: a change as JSON, and what it does to the state. */
interface Staged {
  readonly json: string
  apply(state: State): void
}

/** Records of the log that are kept. */
const [maxRecords, maxRecordBytes] = [100_000, 2 ** 26]
/** A batch ends with the request that makes it longer. */
const maxBatchBytes = 2 ** 22
/** The journal is replaced by the state when it is longer, and twice as long as after the last time, or so much longer. */
const [compactAbove, compactAfter] = [2 ** 23, 2 ** 27]

/** Everything that is stored, as of the last durable batch. */
export class State {
  readonly buckets = new Map<string, Map<string, Stored>>()
  readonly ttls = new Map<string, number>()
  readonly records = new Map<number, string>()
  revision = 0
  seq = 0
  #recordBytes = 0
  /** Called with each change of a bucket. */
  onChange: (bucket: string, change: KvChange) => void = () => {}
  /** Called when records were appended. */
  onRecord: () => void = () => {}

  get(bucket: string, key: string): Stored | undefined {
    const stored = this.buckets.get(bucket)?.get(key)
    return stored && !this.isExpired(bucket, stored) ? stored : undefined
  }

  isExpired(bucket: string, { since }: Stored): boolean {
    const ttl = this.ttls.get(bucket)
    return ttl !== undefined && performance.now() - since >= ttl
  }

  put(bucket: string, key: string, revision: number, text: string): void {
    const values = this.buckets.get(bucket) ?? new Map<string, Stored>()
    this.buckets.set(bucket, values)
    // Deleted first: a bucket is in the order of writing, so that what expires first is at its start.
    values.delete(key)
    values.set(key, { text, revision, since: performance.now() })
    this.revision = Math.max(this.revision, revision)
    this.onChange(bucket, { key, value: JSON.parse(text), revision })
  }

  delete(bucket: string, key: string, revision: number): void {
    this.buckets.get(bucket)?.delete(key)
    this.revision = Math.max(this.revision, revision)
    this.onChange(bucket, { key, value: undefined, revision })
  }

  append(seq: number, text: string): void {
    this.records.set(seq, text)
    this.seq = seq
    this.#recordBytes += text.length
    while (this.records.size > maxRecords || this.#recordBytes > maxRecordBytes) {
      const [[first, { length }]] = this.records as unknown as Iterable<[number, string]> as [
        [number, string],
      ]
      this.records.delete(first)
      this.#recordBytes -= length
    }
    this.onRecord()
  }

  /** Does what a batch of a journal says. */
  replay(text: string): void {
    const changes = JSON.parse(text) as readonly (Change | readonly ['at', revision: number, seq: number])[]
    for (const change of changes) {
      if (change[0] === 'put') this.put(change[1], change[2], change[3], JSON.stringify(change[4]))
      else if (change[0] === 'del') this.delete(change[1], change[2], change[3])
      else if (change[0] === 'log') this.append(change[1], JSON.stringify(change[2]))
      else [this.revision, this.seq] = [change[1], change[2]]
    }
  }

  /** Batches that lead to this state. */
  *batches(isDurable: (bucket: string) => boolean): Iterable<string> {
    yield JSON.stringify([['at', this.revision, Math.max(0, this.seq - this.records.size)]])
    for (const [bucket, values] of this.buckets) {
      if (!isDurable(bucket)) continue
      for (const [key, { revision, text }] of values) yield `[${putJson(bucket, key, revision, text)}]`
    }
    for (const [seq, text] of this.records) yield `[${logJson(seq, text)}]`
  }
}

const putJson = (bucket: string, key: string, revision: number, text: string): string =>
  `["put","${bucket}","${key}",${revision},${text}]`
const logJson = (seq: number, text: string): string => `["log",${seq},${text}]`

/** Changes that are decided one after the other, each on top of those before it, and become durable together. */
export class Transaction {
  readonly #state: State
  readonly #values = new Map<string, Stored | undefined>()
  readonly staged: Staged[] = []
  #revision: number
  #seq: number
  bytes = 0

  constructor(state: State) {
    this.#state = state
    this.#revision = state.revision
    this.#seq = state.seq
  }

  /** Number of the last record. */
  get seq(): number {
    return this.#seq
  }

  get(bucket: string, key: string): Stored | undefined {
    const name = `${bucket} ${key}`
    return this.#values.has(name) ? this.#values.get(name) : this.#state.get(bucket, key)
  }

  put(bucket: string, key: string, text: string): number {
    const revision = ++this.#revision
    this.#values.set(`${bucket} ${key}`, { text, revision, since: performance.now() })
    this.#stage({
      json: putJson(bucket, key, revision, text),
      apply: state => state.put(bucket, key, revision, text),
    })
    return revision
  }

  delete(bucket: string, key: string): void {
    const revision = ++this.#revision
    this.#values.set(`${bucket} ${key}`, undefined)
    this.#stage({
      json: `["del","${bucket}","${key}",${revision}]`,
      apply: state => state.delete(bucket, key, revision),
    })
  }

  append(text: string): number {
    const seq = ++this.#seq
    this.#stage({ json: logJson(seq, text), apply: state => state.append(seq, text) })
    return seq
  }

  #stage(staged: Staged): void {
    this.staged.push(staged)
    this.bytes += staged.json.length
  }
}

type Decision<T> = (transaction: Transaction) => T

interface Request {
  decide(transaction: Transaction): () => void
  reject(error: unknown): void
}

/** State and journal. */
export class Store {
  readonly state = new State()
  readonly #journal: Journal
  readonly #isDurable: (bucket: string) => boolean
  #requests: Request[] = []
  #writing: Promise<void> | undefined
  #isWriting = false
  #closed = false
  #compacted: number
  /** Why the last batch was not stored. */
  failure: unknown

  constructor(journal: Journal, texts: readonly string[], isDurable: (bucket: string) => boolean) {
    this.#journal = journal
    this.#isDurable = isDurable
    for (const [i, text] of texts.entries()) {
      try {
        this.state.replay(text)
      } catch (cause) {
        throw new SparkError('ERR_FORMAT', `batch ${i + 1} of the journal cannot be read`, { cause })
      }
    }
    this.#compacted = journal.bytes / 2
  }

  /**
   * Decides on top of all earlier decisions; what follows is durable when this resolves.
   * @throws SparkError what `decide` throws; ERR_IO; ERR_DISPOSED
   */
  commit<T>(decide: Decision<T>): Promise<T> {
    if (this.#closed) return Promise.reject(closedError())
    return new Promise<T>((resolve, reject) => {
      this.#requests.push({
        decide(transaction) {
          try {
            const result = decide(transaction)
            return () => resolve(result)
          } catch (error) {
            return () => reject(error)
          }
        },
        reject,
      })
      if (this.#isWriting) return
      this.#isWriting = true
      this.#writing = this.#write()
    })
  }

  /** As {@link commit}, for buckets in memory: at once. */
  decideNow<T>(decide: Decision<T>): T {
    if (this.#closed) throw closedError()
    const transaction = new Transaction(this.state)
    const result = decide(transaction)
    for (const staged of transaction.staged) staged.apply(this.state)
    return result
  }

  async #write(): Promise<void> {
    while (this.#requests.length > 0) {
      const transaction = new Transaction(this.state)
      const answers: (() => void)[] = []
      let count = 0
      while (count < this.#requests.length && transaction.bytes < maxBatchBytes)
        answers.push(this.#requests[count++]!.decide(transaction))
      const decided = this.#requests.slice(0, count)
      this.#requests = this.#requests.slice(count)
      try {
        await this.#compact()
        if (transaction.staged.length > 0)
          await this.#journal.append(`[${transaction.staged.map(({ json }) => json).join(',')}]`)
        this.failure = undefined
      } catch (error) {
        this.failure = error
        for (const { reject } of decided) reject(error)
        continue
      }
      for (const staged of transaction.staged) staged.apply(this.state)
      for (const answer of answers) answer()
    }
    this.#isWriting = false
  }

  async #compact(): Promise<void> {
    const limit = Math.min(2 * this.#compacted, this.#compacted + compactAfter)
    if (this.#journal.bytes < Math.max(compactAbove, limit)) return
    // Where there is no room for a second file, the journal grows on until it is that much longer again.
    await this.#journal.replace(this.state.batches(this.#isDurable)).catch(() => {})
    this.#compacted = this.#journal.bytes
  }

  /** Ends what was begun, and takes nothing more. */
  async close(): Promise<void> {
    this.#closed = true
    await this.#writing
    await this.#journal.close()
  }
}
