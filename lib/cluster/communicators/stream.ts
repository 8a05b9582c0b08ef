// stream.ts: ranks over links, which are encrypted: for stages on networks that nobody vouches for. Collectives are made of
// messages and add in the order of ranks.
import { argumentError, expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Frame } from '../links/record.js'
import { type Communicator, expectBytes, expectOther, expectValues, type RankOf } from './communicator.js'
import { Inbox } from './inbox.js'
import { type EpochMember, LinkReader, type RankLink } from './link-reader.js'

/** Types of frames: twice the index of what is done, plus one where more of the same message follows. */
const firstType = 192
const ops = [
  'join',
  'send',
  'allReduce',
  'sums',
  'allGather',
  'broadcast',
  'barrier',
  'abort',
  'leave',
] as const
type Op = (typeof ops)[number]

/** The first and the last type of the frames of ranks. */
export const rankFrames: readonly [number, number] = [firstType, firstType + 2 * ops.length - 1]

const opOf = ({ type }: Frame): Op | undefined => ops[(type - firstType) >> 1]

/** A message goes in frames of so many bytes. */
const pieceBytes = 4 << 20
/** Up to here each rank adds everything: one message to each other rank instead of two of a part. */
const smallBytes = 64 << 10
const maxControlBytes = 2048

/** Another rank. */
interface Other {
  readonly rank: number
  readonly link: RankLink
  readonly messages: Inbox
  readonly collectives: Inbox
  readonly reader: LinkReader
  readonly member: EpochMember
  /** Its last message: the pieces of the next one must not come between. */
  sending: Promise<unknown>
}

/** A communicator over links. */
export class StreamCommunicator implements Communicator {
  readonly kind = 'stream'
  readonly epoch: number
  readonly rank: number
  readonly world: number
  readonly #timeoutMs: number
  readonly #others: readonly Other[]
  readonly #calls = new Set<Promise<unknown>>()
  readonly #stop = new AbortController()
  /** The collectives that began. */
  #turn: Promise<unknown> = Promise.resolve()
  #over: SparkError | undefined
  #left: Promise<void> | undefined

  private constructor(
    { epoch, rank, world }: RankOf,
    links: readonly (RankLink | undefined)[],
    timeoutMs: number,
  ) {
    this.epoch = epoch
    this.rank = rank
    this.world = world
    this.#timeoutMs = timeoutMs
    this.#others = links.flatMap((link, other) => (link && other !== rank ? [this.#meet(other, link)] : []))
  }

  /**
   * Joins the ranks at the other ends of the links.
   * @param links - by rank; that of this rank is not looked at
   * @throws SparkError ERR_ARGUMENT, ERR_CONFLICT, ERR_IO
   */
  static async open(
    rankOf: RankOf,
    links: readonly (RankLink | undefined)[],
    timeoutMs: number,
  ): Promise<StreamCommunicator> {
    const missing = Array.from({ length: rankOf.world }, (_, rank) => rank).filter(
      rank => rank !== rankOf.rank && !links[rank],
    )
    if (missing.length > 0 || links.length > rankOf.world)
      throw argumentError('peers', `${rankOf.world} links, one for each rank`, links)
    const communicator = new StreamCommunicator(rankOf, links, timeoutMs)
    try {
      await communicator.#join()
    } catch (error) {
      communicator.#end(error as SparkError)
      communicator.#detach()
      throw error
    }
    return communicator
  }

  /** Aborted where a rank has gone or aborted: with why. */
  get signal(): AbortSignal {
    return this.#stop.signal
  }

  async send(to: number, bytes: Uint8Array): Promise<void> {
    expectOther('to', to, this)
    expectBytes('bytes', bytes)
    await this.#begun(() => {
      const other = this.#other(to)
      const sent = other.sending.then(() => this.#write(other, 'send', bytes))
      other.sending = sent.catch(() => {})
      return sent
    })
  }

  async recv(from: number, into: Uint8Array): Promise<void> {
    expectOther('from', from, this)
    expectBytes('into', into)
    const late = (isBegun: boolean): SparkError => {
      const error = new SparkError('ERR_IO', `recv: rank ${from} did not answer within ${this.#timeoutMs} ms`)
      // What is left of its message would be taken for the next one.
      if (isBegun) this.#end(error)
      return error
    }
    await this.#begun(async () => {
      const size = await this.#other(from).messages.read('send', into, this.#timeoutMs, late)
      if (size !== into.length)
        throw new SparkError(
          'ERR_SHAPE',
          `recv: the message of rank ${from} has ${size} bytes; there is space for ${into.length}`,
        )
    })
  }

  async allReduce(values: Float32Array): Promise<void> {
    expectValues(values)
    await this.#collective(() => this.#reduce(values))
  }

  async allGather(bytes: Uint8Array): Promise<Uint8Array[]> {
    expectBytes('bytes', bytes)
    return this.#collective(() => this.#exchange('allGather', bytes))
  }

  async broadcast(bytes: Uint8Array, root: number): Promise<void> {
    expectBytes('bytes', bytes)
    if (root !== this.rank) expectOther('root', root, this)
    await this.#collective(async () => {
      if (root === this.rank) await this.#toAll('broadcast', () => bytes)
      else await this.#read(this.#other(root), 'broadcast', bytes)
    })
  }

  async barrier(): Promise<void> {
    await this.#collective(() => this.#exchange('barrier', new Uint8Array(0)))
  }

  abort(reason: string): void {
    expectText('reason', reason)
    if (!this.#left) this.#end(new SparkError('ERR_IO', reason))
  }

  leave(): Promise<void> {
    this.#left ??= Promise.allSettled(this.#calls).then(async () => {
      if (!this.#over) await Promise.allSettled(this.#others.map(other => this.#control(other, 'leave')))
      this.#detach()
    })
    return this.#left
  }

  #other(rank: number): Other {
    return this.#others[rank < this.rank ? rank : rank - 1]!
  }

  #meet(rank: number, link: RankLink): Other {
    const [messages, collectives] = [new Inbox(), new Inbox()]
    let hasLeft = false
    const member: EpochMember = {
      epoch: this.epoch,
      take: frame => {
        if (opOf(frame) === 'leave') hasLeft = true
        return this.#take(rank, { messages, collectives }, frame)
      },
      outdated: frame => {
        if (opOf(frame) === 'join')
          this.#tell(link, frame.id, this.#epochIsOver(frame.id, this.rank, this.epoch))
      },
      overtaken: (epoch, byPeer) =>
        this.#end(this.#epochIsOver(this.epoch, byPeer ? rank : this.rank, epoch)),
      lost: ({ message }) => {
        if (!hasLeft) this.#end(new SparkError('ERR_IO', `rank ${rank} is gone: ${message}`))
      },
    }
    const reader = LinkReader.of(link)
    return { rank, link, messages, collectives, reader, member, sending: Promise.resolve() }
  }

  #epochIsOver(old: number, rank: number, epoch: number): SparkError {
    return new SparkError('ERR_CONFLICT', `epoch ${old} is over: rank ${rank} joined epoch ${epoch}`)
  }

  #take(rank: number, inboxes: Pick<Other, 'messages' | 'collectives'>, frame: Frame): Promise<void> | void {
    const { messages, collectives } = inboxes
    const { type, payload: bytes } = frame
    const op = opOf(frame)
    if (op === undefined)
      return this.#end(new SparkError('ERR_FORMAT', `rank ${rank} sent a frame of type ${type}`))
    if (op === 'abort') return this.#end(readAbort(rank, bytes), false)
    if (op === 'leave') {
      const left = new SparkError('ERR_IO', `rank ${rank} left`)
      messages.end(left)
      return collectives.end(left)
    }
    return (op === 'send' ? messages : collectives).push({ op, more: (type & 1) === 1, bytes })
  }

  async #join(): Promise<void> {
    for (const { reader, member } of this.#others) reader.attach(member)
    const own = new Uint8Array(new Uint32Array([this.rank, this.world]).buffer)
    await this.#begun(() =>
      Promise.all([
        this.#toAll('join', () => own),
        ...this.#others.map(async other => {
          const theirs = new Uint32Array(2)
          await this.#read(other, 'join', new Uint8Array(theirs.buffer))
          if (theirs[0] !== other.rank || theirs[1] !== this.world)
            throw new SparkError(
              'ERR_CONFLICT',
              `the node of rank ${other.rank} of ${this.world} joins as rank ${theirs[0]} of ${theirs[1]}`,
            )
        }),
      ]),
    )
  }

  /** The bytes of all ranks. */
  async #exchange(op: Op, bytes: Uint8Array): Promise<Uint8Array[]> {
    const parts = Array.from({ length: this.world }, (_, rank) =>
      rank === this.rank ? bytes.slice() : new Uint8Array(bytes.length),
    )
    await Promise.all([
      this.#toAll(op, () => bytes),
      ...this.#others.map(other => this.#read(other, op, parts[other.rank]!)),
    ])
    return parts
  }

  async #reduce(values: Float32Array): Promise<void> {
    const { world, rank } = this
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
    if (world <= 2 || bytes.length <= smallBytes) {
      sumInto(values, await this.#exchange('allReduce', bytes))
      return
    }
    // Each rank adds a part of the elements and sends the sums to the others.
    const part = (of: number): Uint8Array => {
      const bound = (r: number): number => Math.floor((values.length * r) / world) * 4
      return bytes.subarray(bound(of), bound(of + 1))
    }
    const own = part(rank)
    const terms = Array.from({ length: world }, (_, r) =>
      r === rank ? own.slice() : new Uint8Array(own.length),
    )
    await Promise.all([
      this.#toAll('allReduce', part),
      ...this.#others.map(other => this.#read(other, 'allReduce', terms[other.rank]!)),
    ])
    sumInto(new Float32Array(own.buffer, own.byteOffset, own.length / 4), terms)
    await Promise.all([
      this.#toAll('sums', () => own),
      ...this.#others.map(other => this.#read(other, 'sums', part(other.rank))),
    ])
  }

  async #toAll(op: Op, bytesFor: (rank: number) => Uint8Array): Promise<void> {
    await Promise.all(this.#others.map(other => this.#write(other, op, bytesFor(other.rank))))
  }

  async #write({ rank, link }: Other, op: Op, bytes: Uint8Array): Promise<void> {
    const type = firstType + 2 * ops.indexOf(op)
    const late = (): void =>
      this.#end(new SparkError('ERR_IO', `${op}: rank ${rank} did not take it within ${this.#timeoutMs} ms`))
    const timer = setTimeout(late, this.#timeoutMs)
    try {
      for (let begin = 0; begin === 0 || begin < bytes.length; begin += pieceBytes) {
        if (this.#over) throw this.#over
        const more = begin + pieceBytes < bytes.length ? 1 : 0
        const payload = bytes.subarray(begin, begin + pieceBytes)
        await link.send({ type: type + more, id: this.epoch, payload }, this.#stop.signal)
        timer.refresh()
      }
    } catch (error) {
      this.#end(new SparkError('ERR_IO', `rank ${rank} is gone: ${(error as Error).message}`))
      throw this.#over
    } finally {
      clearTimeout(timer)
    }
  }

  /** Reads a message of a collective. */
  async #read({ rank, collectives }: Other, op: Op, into: Uint8Array): Promise<void> {
    const late = (): SparkError =>
      new SparkError('ERR_IO', `${op}: rank ${rank} did not come within ${this.#timeoutMs} ms`)
    const size = await collectives.read(op, into, this.#timeoutMs, late)
    if (size !== into.length)
      throw new SparkError(
        'ERR_SHAPE',
        `${op}: rank ${rank} has ${size} bytes, rank ${this.rank} ${into.length}`,
      )
  }

  /** A collective after those before it. What fails ends the communicator. */
  #collective<T>(work: () => Promise<T>): Promise<T> {
    return this.#begun(() => {
      const call = this.#turn.then(() => {
        if (this.#over) throw this.#over
        return work()
      })
      const ended = call.catch(error => {
        this.#end(error)
        throw this.#over
      })
      this.#turn = ended.catch(() => {})
      return ended
    })
  }

  async #begun<T>(work: () => Promise<T>): Promise<T> {
    if (this.#left) throw new SparkError('ERR_DISPOSED', `rank ${this.rank} has left its communicator`)
    if (this.#over) throw this.#over
    const call = work()
    this.#calls.add(call)
    try {
      return await call
    } finally {
      this.#calls.delete(call)
    }
  }

  #end(error: SparkError, tell = true): void {
    if (this.#over) return
    this.#over = error
    this.#stop.abort(error)
    for (const { link, messages, collectives } of this.#others) {
      messages.fail(error)
      collectives.fail(error)
      if (tell) this.#tell(link, this.epoch, error)
    }
  }

  /** Tells another rank why an epoch is over, as far as it can be reached. */
  #tell(link: RankLink, epoch: number, { code, message }: SparkError): void {
    const payload = Buffer.from(JSON.stringify({ code, message: message.slice(0, maxControlBytes / 4) }))
    const type = firstType + 2 * ops.indexOf('abort')
    link.send({ type, id: epoch, payload }).catch(() => {})
  }

  async #control({ link }: Other, op: Op): Promise<void> {
    const type = firstType + 2 * ops.indexOf(op)
    await link.send({ type, id: this.epoch, payload: new Uint8Array(0) }, this.#stop.signal)
  }

  #detach(): void {
    const left = new SparkError('ERR_DISPOSED', `rank ${this.rank} has left its communicator`)
    for (const { reader, member, messages, collectives } of this.#others) {
      reader.detach(member)
      // A piece that waits there would hold up the next epoch.
      messages.fail(left)
      collectives.fail(left)
    }
  }
}

/** Adds in the order of ranks. */
function sumInto(sums: Float32Array, terms: readonly Uint8Array[]): void {
  for (const [rank, bytes] of terms.entries()) {
    const values = new Float32Array(bytes.buffer, bytes.byteOffset, sums.length)
    if (rank === 0) sums.set(values)
    else for (let i = 0; i < sums.length; i++) sums[i]! += values[i]!
  }
}

/** What another rank says when it ends an epoch. */
function readAbort(rank: number, bytes: Uint8Array): SparkError {
  const unreadable = new SparkError('ERR_IO', `rank ${rank} aborted`)
  if (bytes.length > maxControlBytes) return unreadable
  try {
    const { code, message } = JSON.parse(Buffer.from(bytes).toString())
    const known = code === 'ERR_SHAPE' || code === 'ERR_CONFLICT' ? code : 'ERR_IO'
    return typeof message === 'string' ? new SparkError(known, message) : unreadable
  } catch {
    return unreadable
  }
}
