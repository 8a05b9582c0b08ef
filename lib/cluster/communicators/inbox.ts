// inbox.ts: pieces of messages that one rank sent and that nobody has asked for yet.
import { SparkError } from '../../core/errors.js'

/** A piece of a message. */
export interface Piece {
  /** What the sender does, such as `send` or `allReduce`. */
  readonly op: string
  /** Whether more pieces of the same message follow. */
  readonly more: boolean
  readonly bytes: Uint8Array
}

/** Says what is wrong when no piece comes in time. */
type Late = (isBegun: boolean) => SparkError

/** Bytes that wait before the sender has to. */
const maxWaiting = 64 << 20

/** A queue. Messages are read one after the other, in the order of the calls. */
export class Inbox {
  readonly #pieces: Piece[] = []
  #bytes = 0
  #error: SparkError | undefined
  /** Nothing follows what waits. */
  #last: SparkError | undefined
  #arrived: (() => void) | undefined
  #taken: (() => void) | undefined
  #turn: Promise<unknown> = Promise.resolve()

  /** Resolves when there is space for another one. */
  async push(piece: Piece): Promise<void> {
    if (this.#error) return
    this.#pieces.push(piece)
    this.#bytes += piece.bytes.length
    this.#arrived?.()
    while (this.#bytes > maxWaiting && !this.#error) {
      await new Promise<void>(resolve => {
        this.#taken = resolve
      })
    }
  }

  /** Whoever reads after what waits gets `error`. */
  end(error: SparkError): void {
    this.#last ??= error
    this.#arrived?.()
  }

  /** Whoever reads gets `error`; what waits is dropped. */
  fail(error: SparkError): void {
    this.#error ??= error
    this.#pieces.length = 0
    this.#bytes = 0
    this.#arrived?.()
    this.#taken?.()
  }

  /**
   * Reads the next message of this operation into `into`.
   * @param late - the error where a piece does not come within `timeoutMs`; told whether others of the message did
   * @returns its bytes, which are more than those of `into` when it does not fit
   * @throws SparkError ERR_SHAPE where another operation comes, and what {@link end} and {@link fail} were told
   */
  read(op: string, into: Uint8Array, timeoutMs: number, late: Late): Promise<number> {
    const done = this.#turn.then(() => this.#read(op, into, timeoutMs, late))
    this.#turn = done.catch(() => {})
    return done
  }

  async #read(op: string, into: Uint8Array, timeoutMs: number, late: Late): Promise<number> {
    let size = 0
    let isBegun = false
    for (let more = true; more; isBegun = true) {
      const piece = await this.#next(timeoutMs, () => late(isBegun))
      if (piece.op !== op)
        throw new SparkError('ERR_SHAPE', `the other rank is in ${piece.op}, this one in ${op}`)
      if (size + piece.bytes.length <= into.length) into.set(piece.bytes, size)
      size += piece.bytes.length
      more = piece.more
    }
    return size
  }

  async #next(timeoutMs: number, late: () => SparkError): Promise<Piece> {
    let isLate = false
    let timer: NodeJS.Timeout | undefined
    while (this.#pieces.length === 0) {
      const error = this.#error ?? this.#last ?? (isLate ? late() : undefined)
      if (error) {
        clearTimeout(timer)
        throw error
      }
      timer ??= setTimeout(() => {
        isLate = true
        this.#arrived?.()
      }, timeoutMs)
      await new Promise<void>(resolve => {
        this.#arrived = resolve
      })
    }
    clearTimeout(timer)
    const piece = this.#pieces.shift()!
    this.#bytes -= piece.bytes.length
    this.#taken?.()
    return piece
  }
}
