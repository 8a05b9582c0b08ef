// rank-channels.ts: the frames of ranks on one link, for several groups: each has a number, which is the epoch of its communicator.
import { LinkChannel } from '../links/channels.js'
import type { Frame } from '../links/record.js'

/** Frames that wait for a group which this node has not joined yet: others join and then wait for it. */
const maxEarly = { frames: 256, bytes: 4096 }
/** Groups that are over, whose last frames may still come. */
const maxOver = 1024

/** Gives the frames of ranks to the groups that this node is in. */
export class RankChannels {
  readonly #link: LinkChannel
  readonly #groups = new Map<number, LinkChannel>()
  readonly #over = new Set<number>()
  #early: Frame[] = []
  #end: { error: Error | undefined } | undefined

  /** @param link - the part of a link that has the frames of ranks; nobody else may read it */
  constructor(link: LinkChannel) {
    this.#link = link
    this.#read().then(
      () => this.#finish(undefined),
      error => this.#finish(error),
    )
  }

  /** The frames of a group; undefined where it has been opened before. */
  open(group: number): LinkChannel | undefined {
    if (this.#groups.has(group) || this.#over.has(group)) return undefined
    const channel = new LinkChannel(this.#link.link)
    this.#groups.set(group, channel)
    for (const frame of this.#early) if (frame.id === group) void channel.take(frame)
    this.#early = this.#early.filter(({ id }) => id !== group)
    if (this.#end) channel.finish(this.#end.error)
    return channel
  }

  /** Ends a group: later frames are dropped. */
  close(group: number): void {
    const channel = this.#groups.get(group)
    if (!channel) return
    this.#groups.delete(group)
    this.#over.add(group)
    const [oldest] = this.#over
    if (this.#over.size > maxOver) this.#over.delete(oldest!)
    channel.finish(undefined)
  }

  async #read(): Promise<void> {
    for await (const frame of this.#link) {
      const channel = this.#groups.get(frame.id)
      if (channel) await channel.take(frame)
      else if (!this.#over.has(frame.id) && frame.payload.length <= maxEarly.bytes) {
        this.#early.push(frame)
        if (this.#early.length > maxEarly.frames) this.#early.shift()
      }
    }
  }

  #finish(error: Error | undefined): void {
    this.#end = { error }
    for (const channel of this.#groups.values()) channel.finish(error)
  }
}
