// frame-sender.ts: the sending half of a link: frames in order, in pieces, no more than the receiver has memory for.
import type { Duplex } from 'node:stream'
import { SparkError } from '../../core/errors.js'
import { encodeHeader, type Frame, pieceBytes, recordKinds } from './record.js'

/** Frames that may wait for their turn; a caller that does not await `send` hears about it then. */
const maxWaiting = 4096

/** Bytes of answers that may wait in a connection whose peer reads none of them. */
const maxUnreadControl = 1 << 20

/** Payloads up to this are copied behind their header: one write instead of two. */
const smallBytes = 16 << 10

/** What the receiver takes at once. */
export interface Window {
  readonly bytes: number
  readonly frames: number
  readonly maxFrameBytes: number
}

/** How long a write that is on its way has after the peer has closed the link. */
const writtenMs = 1000

/** Writes records to the connection of the moment. */
export class FrameSender {
  readonly #window: Window
  readonly #onTransfer: (bytes: number, milliseconds: number) => void
  #duplex: Duplex
  #tail: Promise<void> = Promise.resolve()
  #waiting = 0
  #ahead = { bytes: 0, frames: 0 }
  /** Ends a wait for credit, and one for a write that failed. */
  #wake: (() => void) | undefined
  #failed: (() => void) | undefined
  #error: Error | undefined
  /** Frames and bytes of payload that were handed on; bytes with headers. */
  readonly sent = { frames: 0, bytes: 0 }

  /** @param onTransfer - hears of frames of 1 MiB and more: bytes and milliseconds */
  constructor(duplex: Duplex, window: Window, onTransfer: (bytes: number, milliseconds: number) => void) {
    this.#duplex = duplex
    this.#window = window
    this.#onTransfer = onTransfer
  }

  /** Whether nothing waits to be written. */
  get idle(): boolean {
    return this.#waiting === 0 && this.#duplex.writableLength === 0
  }

  /**
   * Every wait from now on ends with `error`.
   * @param isClean - the peer has closed the link: what it has read already may not have been reported as written yet
   */
  fail(error: Error, isClean = false): void {
    this.#error ??= error
    this.#wake?.()
    if (isClean) setTimeout(() => this.#failed?.(), writtenMs).unref()
    else this.#failed?.()
  }

  /** The receiver consumed frames. */
  acknowledge(frames: number, bytes: number): void {
    if (frames > this.#ahead.frames || bytes > this.#ahead.bytes)
      throw new SparkError(
        'ERR_FORMAT',
        `the peer consumed ${frames} frames of ${bytes} bytes that it was never sent`,
      )
    this.#ahead = { frames: this.#ahead.frames - frames, bytes: this.#ahead.bytes - bytes }
    this.#wake?.()
  }

  /** Writes an answer or question at once, between the pieces of a frame. */
  control(record: Buffer): void {
    if (this.#error) return
    if (this.#duplex.writableLength > maxUnreadControl + pieceBytes * 2)
      throw new SparkError('ERR_IO', 'the peer asks much and reads no answers')
    this.#write(record)
  }

  /** Sends a frame after those before it; resolves when the connection took its last byte. */
  async frame({ type, id, payload }: Frame, signal?: AbortSignal): Promise<void> {
    if (payload.length > this.#window.maxFrameBytes) {
      throw new SparkError(
        'ERR_RANGE',
        `a frame has ${payload.length} bytes; this link takes at most ${this.#window.maxFrameBytes}`,
      )
    }
    if (this.#waiting >= maxWaiting)
      throw new SparkError(
        'ERR_BUSY',
        `${maxWaiting} frames wait to be sent; await send() before the next one`,
      )
    signal?.throwIfAborted()
    await this.#inTurn(async () => {
      await this.#credit(signal)
      this.#ahead.bytes += payload.length
      this.#ahead.frames++
      await this.#pieces(type, id, payload)
      this.sent.frames++
    }, signal)
  }

  /** Writes records one after the other, honouring the connection's limits: a probe, a mark. */
  async records(records: Iterable<Buffer>): Promise<void> {
    await this.#inTurn(async () => {
      for (const record of records) await this.#writeAndWait(record)
    })
  }

  /** Writes `mark` to the connection and goes on with the next one. */
  async moveTo(duplex: Duplex, mark: Buffer): Promise<void> {
    await this.#inTurn(async () => {
      this.#write(mark)
      this.#duplex = duplex
    })
  }

  /** @param signal - ends the wait for the turn */
  async #inTurn(act: () => Promise<void>, signal?: AbortSignal): Promise<void> {
    this.#waiting++
    let aborted = (): void => {}
    const unwanted = new Promise<never>((_, reject) => {
      aborted = () => reject(signal!.reason)
      signal?.addEventListener('abort', aborted)
    })
    const turn = this.#tail.then(async () => {
      signal?.removeEventListener('abort', aborted)
      try {
        if (this.#error) throw this.#error
        signal?.throwIfAborted()
        await act()
      } finally {
        this.#waiting--
      }
    })
    this.#tail = turn.catch(() => {})
    await Promise.race([turn, unwanted])
  }

  /** Waits until the receiver has memory for one more frame. */
  async #credit(signal: AbortSignal | undefined): Promise<void> {
    const wake = (): void => this.#wake?.()
    signal?.addEventListener('abort', wake)
    try {
      for (;;) {
        signal?.throwIfAborted()
        if (this.#error) throw this.#error
        if (this.#ahead.frames < this.#window.frames && this.#ahead.bytes < this.#window.bytes) return
        await new Promise<void>(resolve => {
          this.#wake = resolve
        })
      }
    } finally {
      signal?.removeEventListener('abort', wake)
    }
  }

  async #pieces(type: number, id: number, payload: Buffer): Promise<void> {
    const total = payload.length
    const start = performance.now()
    const first = Math.min(total, pieceBytes)
    if (total <= smallBytes) {
      await this.#writeAndWait(
        Buffer.concat([encodeHeader(recordKinds.data, type, id, total, total), payload]),
      )
      return
    }
    for (let offset = 0; offset < total; offset += pieceBytes) {
      const piece = payload.subarray(offset, offset + pieceBytes)
      const kind = offset === 0 ? recordKinds.data : recordKinds.more
      this.#duplex.cork()
      this.#write(encodeHeader(kind, type, id, total, offset === 0 ? first : piece.length))
      const written = this.#writeAndWait(piece)
      this.#duplex.uncork()
      await written
    }
    if (total >= pieceBytes) this.#onTransfer(total, performance.now() - start)
  }

  #write(record: Buffer, taken?: (error?: Error | null) => void): boolean {
    this.sent.bytes += record.length
    return this.#duplex.write(record, taken)
  }

  /** Writes, and waits until the connection took the bytes. */
  #writeAndWait(record: Buffer): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#failed = () => reject(this.#error)
      this.#write(record, error => {
        this.#failed = undefined
        if (error) reject(this.#error ?? error)
        else resolve()
      })
    })
  }
}
