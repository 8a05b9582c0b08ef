// frame-queue.ts: frames that arrived and wait for their reader, bounded by the window that the sender was told.
import { SparkError } from '../../core/errors.js'
import type { Frame } from './record.js'

/** What one node sends at once before the other consumed it. */
export interface QueueLimits {
  readonly bytes: number
  readonly frames: number
  readonly maxFrameBytes: number
}

/** A queue between a connection and its one reader. */
export class FrameQueue {
  readonly #limits: QueueLimits
  readonly #consumed: (frames: number, bytes: number) => void
  #frames: Frame[] = []
  #next = 0
  #bytes = 0
  #unacknowledged = { frames: 0, bytes: 0 }
  #wake: (() => void) | undefined
  #end: { error: Error | undefined } | undefined

  /** @param consumed - is told what was consumed, several frames at a time */
  constructor(limits: QueueLimits, consumed: (frames: number, bytes: number) => void) {
    this.#limits = limits
    this.#consumed = consumed
  }

  /** Frames and bytes that wait. */
  get waiting(): { frames: number; bytes: number } {
    return { frames: this.#frames.length - this.#next, bytes: this.#bytes }
  }

  /** Whether no frame follows. */
  get ended(): boolean {
    return this.#end !== undefined
  }

  /**
   * Checks that a frame of `total` bytes may come.
   * @throws SparkError ERR_FORMAT where the sender ignores the window
   */
  expect(total: number): void {
    const { bytes, frames, maxFrameBytes } = this.#limits
    if (total > maxFrameBytes)
      throw new SparkError(
        'ERR_FORMAT',
        `a frame of ${total} bytes comes; this node takes at most ${maxFrameBytes}`,
      )
    if (this.#end) throw new SparkError('ERR_FORMAT', 'a frame comes after the last one')
    if (this.#bytes >= bytes || this.waiting.frames >= frames)
      throw new SparkError(
        'ERR_FORMAT',
        `a frame comes while ${this.waiting.frames} frames of ${this.#bytes} bytes wait`,
      )
  }

  push(frame: Frame): void {
    this.#frames.push(frame)
    this.#bytes += frame.payload.length
    this.#wake?.()
  }

  /** No frame follows those that wait; `error`: why. */
  end(error?: Error): void {
    this.#end ??= { error }
    this.#wake?.()
  }

  /** The next frame; undefined after the last one. */
  async next(): Promise<Frame | undefined> {
    while (this.#next === this.#frames.length) {
      if (this.#end?.error) throw this.#end.error
      if (this.#end) return undefined
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
    const frame = this.#frames[this.#next++]
    if (this.#next === this.#frames.length || this.#next > 1024) {
      this.#frames.splice(0, this.#next)
      this.#next = 0
    }
    this.#bytes -= frame.payload.length
    this.#acknowledge(frame.payload.length)
    return frame
  }

  #acknowledge(bytes: number): void {
    const due = this.#unacknowledged
    due.frames++
    due.bytes += bytes
    if (due.frames * 4 < this.#limits.frames && due.bytes * 4 < this.#limits.bytes) return
    this.#unacknowledged = { frames: 0, bytes: 0 }
    this.#consumed(due.frames, due.bytes)
  }
}
