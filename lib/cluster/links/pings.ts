// pings.ts: pings and probes of a link, and their answers.
import { SparkError } from '../../core/errors.js'
import {
  encodeControl,
  encodeHeader,
  headerBytes,
  pieceBytes,
  type RecordHeader,
  recordKinds,
} from './record.js'

const pingTimeoutMs = 30_000
const maxOpen = 64

/** Bytes of probes that a peer may send in a minute. */
const probeBudget = 1 << 30

type Settle = (error?: Error) => void

/** Measures by records that carry nothing. */
export class Pings {
  readonly #write: (record: Buffer) => void
  readonly #writeInTurn: (records: Iterable<Buffer>) => Promise<void>
  readonly #open = new Map<number, Settle>()
  #nextId = 1
  #error: Error | undefined
  #arrived = { id: 0, bytes: 0 }
  #budget = { bytes: 0, since: 0 }

  constructor(write: (record: Buffer) => void, writeInTurn: (records: Iterable<Buffer>) => Promise<void>) {
    this.#write = write
    this.#writeInTurn = writeInTurn
  }

  /** Milliseconds until a ping of 64 bytes came back. */
  async ping(signal?: AbortSignal): Promise<number> {
    const id = this.#nextId++ >>> 0
    const body = Buffer.alloc(64 - headerBytes)
    const start = performance.now()
    const answer = this.#answer(id, signal)
    this.#write(encodeControl(recordKinds.ping, id, 0, body))
    await answer
    return performance.now() - start
  }

  /** Milliseconds until the peer had all of `bytes`. */
  async probe(bytes: number, signal?: AbortSignal): Promise<number> {
    const id = this.#nextId++ >>> 0
    const answer = this.#answer(id, signal)
    const start = performance.now()
    await Promise.all([answer, this.#writeInTurn(probeRecords(id, bytes))])
    return performance.now() - start
  }

  /** The peer answered. */
  answered(id: number): void {
    this.#open.get(id)?.()
  }

  /**
   * Bytes of the peer's probe arrived.
   * @throws SparkError ERR_FORMAT where there are too many
   */
  probed({ id, total }: RecordHeader, bytes: number, complete: boolean): void {
    if (this.#arrived.id !== id) this.#arrived = { id, bytes: 0 }
    this.#arrived.bytes += bytes
    this.#budget.bytes += bytes
    const now = performance.now()
    if (now - this.#budget.since > 60_000) this.#budget = { bytes, since: now }
    if (this.#budget.bytes > probeBudget)
      throw new SparkError('ERR_FORMAT', 'the peer measures the link all the time')
    if (complete && this.#arrived.bytes >= total) this.#write(encodeControl(recordKinds.probed, id))
  }

  /** Every wait ends with `error`. */
  fail(error: Error): void {
    this.#error = error
    for (const settle of [...this.#open.values()]) settle(error)
  }

  #answer(id: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#error) return Promise.reject(this.#error)
    if (this.#open.size >= maxOpen)
      return Promise.reject(new SparkError('ERR_BUSY', `${maxOpen} measurements of this link are under way`))
    return new Promise((resolve, reject) => {
      const settle: Settle = error => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', aborted)
        this.#open.delete(id)
        if (error) reject(error)
        else resolve()
      }
      const aborted = (): void => settle(signal!.reason)
      const late = (): void => settle(new SparkError('ERR_IO', `no answer within ${pingTimeoutMs} ms`))
      const timer = setTimeout(late, pingTimeoutMs)
      timer.unref()
      signal?.addEventListener('abort', aborted)
      this.#open.set(id, settle)
      if (signal?.aborted) aborted()
    })
  }
}

/** Records of a probe: zeros, which nothing on the way may compress, for TLS hides them. */
function* probeRecords(id: number, bytes: number): Generator<Buffer> {
  const piece = Buffer.alloc(Math.min(bytes, pieceBytes))
  for (let left = bytes; left > 0; left -= pieceBytes) {
    const length = Math.min(left, pieceBytes)
    yield Buffer.concat([encodeHeader(recordKinds.probe, 0, id, bytes, length), piece.subarray(0, length)])
  }
}
