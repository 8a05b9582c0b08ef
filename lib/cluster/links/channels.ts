// channels.ts: a link for several uses: each takes the frames of its own types, and all share what goes to the other node.
import { debug } from '../../core/log.js'
import type { FrameStream } from './frame-stream.js'
import type { Frame } from './record.js'

/** Frames that wait for the reader of a channel; the next one holds up the whole link. */
const maxWaiting = { frames: 256, bytes: 64 << 20 }

/** The part of a link that has some types of frames. One reader. */
export class LinkChannel implements AsyncIterable<Frame> {
  /** The link. */
  readonly link: FrameStream
  readonly #frames: Frame[] = []
  #bytes = 0
  #end: { error: Error | undefined } | undefined
  #wakeReader: (() => void) | undefined
  #wakeWriter: (() => void) | undefined

  /** @internal */
  constructor(link: FrameStream) {
    this.link = link
  }

  /** Who is at the other end. */
  get peer(): FrameStream['peer'] {
    return this.link.peer
  }

  /** As `FrameStream.send`. */
  async send(frame: { type: number; id: number; payload: Uint8Array }, signal?: AbortSignal): Promise<void> {
    await this.link.send(frame, signal)
  }

  /** Ends the whole link because of what the peer did. */
  destroy(error: Error): void {
    this.link.destroy(error)
  }

  /** Frames of the channel until the link ends. @throws SparkError the reason why it ended, but for the end of frames */
  async *[Symbol.asyncIterator](): AsyncGenerator<Frame, void, void> {
    for (;;) {
      const frame = this.#frames.shift()
      if (frame) {
        this.#bytes -= frame.payload.length
        this.#wakeWriter?.()
        yield frame
      } else if (this.#end) {
        if (this.#end.error) throw this.#end.error
        return
      } else
        await new Promise<void>(resolve => {
          this.#wakeReader = resolve
        })
    }
  }

  /** @internal takes a frame; the next one follows when it resolves. */
  async take(frame: Frame): Promise<void> {
    while (this.#frames.length >= maxWaiting.frames || this.#bytes >= maxWaiting.bytes) {
      if (this.#end) return
      await new Promise<void>(resolve => {
        this.#wakeWriter = resolve
      })
    }
    this.#frames.push(frame)
    this.#bytes += frame.payload.length
    this.#wakeReader?.()
  }

  /** @internal nothing follows. */
  finish(error: Error | undefined): void {
    this.#end ??= { error }
    this.#wakeReader?.()
    this.#wakeWriter?.()
  }
}

/**
 * Gives the frames of a link to its channels. Open all of them before the event loop turns: frames that no channel takes are
 * dropped.
 * @example
 * const channels = new LinkChannels(link)
 * const chunks = channels.open([0x40, 0x4f])
 * for await (const frame of chunks) handle(frame)
 */
export class LinkChannels {
  readonly #link: FrameStream
  readonly #channels: { readonly range: readonly [number, number]; readonly channel: LinkChannel }[] = []

  constructor(link: FrameStream) {
    this.#link = link
    queueMicrotask(() => void this.#read())
    void link.closed.then(({ error }) => this.#finish(error))
  }

  /** A channel of the frames from the first to the last of two types. */
  open(range: readonly [first: number, last: number]): LinkChannel {
    const channel = new LinkChannel(this.#link)
    this.#channels.push({ range, channel })
    return channel
  }

  async #read(): Promise<void> {
    try {
      for await (const frame of this.#link) {
        const found = this.#channels.find(({ range }) => frame.type >= range[0] && frame.type <= range[1])
        if (found) await found.channel.take(frame)
        else debug(`a frame of type ${frame.type} of node ${this.#link.peer.nodeId} is for nobody here`)
      }
      this.#finish(undefined)
    } catch (error) {
      this.#finish(error as Error)
    }
  }

  #finish(error: Error | undefined): void {
    for (const { channel } of this.#channels) channel.finish(error)
  }
}
