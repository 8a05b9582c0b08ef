// link-reader.ts: hands the frames of a link to the communicator of their epoch, one epoch after the other.
import { SparkError } from '../../core/errors.js'
import type { LinkChannel } from '../links/channels.js'
import type { FrameStream } from '../links/frame-stream.js'
import type { Frame } from '../links/record.js'

/** A link, or the part of one, that ranks send frames over. */
export type RankLink = FrameStream | LinkChannel

/** Who takes the frames of an epoch. */
export interface EpochMember {
  readonly epoch: number
  /** Takes a frame of its epoch; the next one follows when it resolves. */
  take(frame: Frame): Promise<void> | void
  /** A frame of an older epoch came, and was dropped. */
  outdated(frame: Frame): void
  /** A newer epoch began: the other node, or else this one, joined it. */
  overtaken(epoch: number, byPeer: boolean): void
  /** The link ended. */
  lost(error: SparkError): void
}

const readers = new WeakMap<RankLink, LinkReader>()

/** The one reader of a link that communicators use. It outlives them: a link carries many epochs. */
export class LinkReader {
  #member: EpochMember | undefined
  #last = -1
  #changed: (() => void) | undefined
  #error: SparkError | undefined

  private constructor(link: RankLink) {
    this.#run(link).then(
      () => this.#lost(new SparkError('ERR_IO', `node ${link.peer.nodeId} ended its link`)),
      (cause: Error) => this.#lost(new SparkError('ERR_IO', cause.message, { cause })),
    )
  }

  /** That of a link, which nobody else may read from then on. */
  static of(link: RankLink): LinkReader {
    const reader = readers.get(link) ?? new LinkReader(link)
    readers.set(link, reader)
    return reader
  }

  /** @throws SparkError ERR_CONFLICT where a later epoch has begun, or this one is in use; ERR_IO where the link ended */
  attach(member: EpochMember): void {
    if (this.#error) throw this.#error
    if (member.epoch <= this.#last)
      throw new SparkError(
        'ERR_CONFLICT',
        `epoch ${member.epoch} is over or in use: this link has seen epoch ${this.#last}`,
      )
    this.#member?.overtaken(member.epoch, false)
    this.#member = member
    this.#last = member.epoch
    this.#changed?.()
  }

  detach(member: EpochMember): void {
    if (this.#member === member) this.#member = undefined
  }

  async #run(link: RankLink): Promise<void> {
    for await (const frame of link) {
      while (frame.id > this.#last) {
        this.#member?.overtaken(frame.id, true)
        await new Promise<void>(resolve => {
          this.#changed = resolve
        })
      }
      if (frame.id < this.#last) this.#member?.outdated(frame)
      else await this.#member?.take(frame)
    }
  }

  #lost(error: SparkError): void {
    this.#error = error
    this.#member?.lost(error)
  }
}
