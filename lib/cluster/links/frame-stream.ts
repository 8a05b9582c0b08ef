// frame-stream.ts: a link between two nodes: frames both ways over one connection, or several after each other.
import { expectInteger, expectSignal } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { Peer } from '../trust/credentials.js'
import { type CallHandler, Calls } from './calls.js'
import { FrameQueue } from './frame-queue.js'
import { FrameSender, type Window } from './frame-sender.js'
import type { LinkLimits } from './options.js'
import { Pings } from './pings.js'
import type { PathStats, Pipe } from './pipe.js'
import { encodeControl, type Frame, type RecordHeader, RecordReader, recordKinds } from './record.js'

/** Both ends of a connection, as IP addresses. */
export interface LinkAddresses {
  /** Of this node. */
  readonly local: string
  /** Of the other node. */
  readonly remote: string
}

/** How a link ended. */
export interface LinkEnd {
  /** In words. */
  readonly reason: string
  /** What went wrong; undefined where a node closed it. */
  readonly error: Error | undefined
}

/** What a link carried since it began. */
export interface LinkCounts {
  /** Messages of this node. */
  readonly framesSent: number
  /** Messages of the other node. */
  readonly framesReceived: number
  /** Of all records, with headers. */
  readonly bytesSent: number
  /** Of all records, with headers. */
  readonly bytesReceived: number
  /** Connections that it went over: one more than it got new keys. */
  readonly connections: number
  /** Frames and bytes of payload that wait for this node's reader. */
  readonly waiting: {
    /** How many. */
    readonly frames: number
    /** Of their payloads. */
    readonly bytes: number
  }
}

/** What a {@link FrameStream} is made of. */
export interface StreamParts {
  readonly pipe: Pipe
  readonly peer: Peer
  readonly transport: string
  readonly limits: LinkLimits
  /** What the peer takes at once. */
  readonly peerWindow: Window
}

/** How long a peer may take to read what came before the end of a link. */
const lingerMs = 5000

/**
 * A link: frames in both directions, each an id, a type and up to 64 MiB, in the order in which they were sent. Iterate
 * over it to receive; one reader. A frame that is not read holds the sender back, so memory stays bounded.
 * @example
 * const link = await transport.connect({ host: '10.0.0.2', port: 7433 }, credentials, nodeId)
 * await link.send({ type: 1, id: 7, payload: bytes })
 * for await (const frame of link) handle(frame)
 */
export class FrameStream implements AsyncIterable<Frame> {
  /** `tls`, `grpc`, `quic` or `tcp`. */
  readonly transport: string
  /** Resolves when the link ended: why, and the error where it did not end on purpose. */
  readonly closed: Promise<LinkEnd>
  readonly #limits: LinkLimits
  readonly #sender: FrameSender
  readonly #queue: FrameQueue
  readonly #calls: Calls
  readonly #pings: Pings
  readonly #watch: NodeJS.Timeout
  #resolveClosed!: (end: { reason: string; error: Error | undefined }) => void
  #pipe: Pipe
  #peer: Peer
  #nextPipe: Pipe | undefined
  /** Ends the wait of a connection that came while the link still moves to the one before it. */
  #moved: (() => void) | undefined
  #reader: RecordReader
  #received = { frames: 0, bytes: 0, ofOldPipes: 0 }
  #connections = 1
  /** While the link moves: whether the peer, and this node, write to the next connection. */
  #switched = false
  #writesNext = false
  #ended = false
  #isClosed = false
  /** Why this node ends the link, from when it tells the other. */
  #closing: string | undefined
  #heard = performance.now()
  #since = performance.now()
  #stalling: { received: number; deadline: number } | undefined
  #onTransfer: ((bytes: number, milliseconds: number) => void) | undefined

  /** @internal */
  constructor({ pipe, peer, transport, limits, peerWindow }: StreamParts) {
    this.#peer = peer
    this.transport = transport
    this.#limits = limits
    this.#pipe = pipe
    this.#sender = new FrameSender(pipe.duplex, peerWindow, (bytes, ms) => this.#onTransfer?.(bytes, ms))
    this.#queue = new FrameQueue(
      { bytes: limits.windowBytes, frames: limits.windowFrames, maxFrameBytes: limits.maxFrameBytes },
      (frames, bytes) => this.#control(encodeControl(recordKinds.ack, frames, bytes)),
    )
    const write = (record: Buffer): void => this.#control(record)
    this.#calls = new Calls(write)
    this.#pings = new Pings(write, records => this.#sender.records(records))
    this.closed = new Promise(resolve => {
      this.#resolveClosed = resolve
    })
    this.#reader = this.#attach(pipe)
    const tick = Math.max(10, Math.min(limits.keepAliveMs, limits.stallMs, limits.rekeyMs) / 4)
    this.#watch = setInterval(() => this.#check(), tick)
  }

  /** Who is at the other end; its certificate, which may be another one with new keys, was checked. */
  get peer(): Peer {
    return this.#peer
  }

  /** Where the connection starts and where it goes to, as IP addresses. */
  get addresses(): LinkAddresses {
    return { local: this.#pipe.localAddress, remote: this.#pipe.remoteAddress }
  }

  /** What went over the link. */
  get counts(): LinkCounts {
    return {
      framesSent: this.#sender.sent.frames,
      framesReceived: this.#received.frames,
      bytesSent: this.#sender.sent.bytes,
      bytesReceived: this.#received.bytes,
      connections: this.#connections,
      waiting: this.#queue.waiting,
    }
  }

  /** Whether no frame is on its way from here. */
  get idle(): boolean {
    return this.#sender.idle
  }

  /** Packets that the transport counted, where it counts any. */
  pathStats(): PathStats | undefined {
    return this.#pipe.pathStats?.()
  }

  /**
   * Sends a frame. Resolves when the connection took its last byte; until then the payload must not change. Waits while the
   * receiver has as much as it takes. Frames arrive in the order of the calls.
   * @param frame - `type` 0 to 255, `id` 0 to 2³² − 1, `payload` up to the smaller `maxFrameBytes` of both nodes
   * @param signal - ends the wait for a turn; a frame that began is sent whole
   * @throws SparkError ERR_ARGUMENT, ERR_RANGE for a payload that is too long, ERR_BUSY when thousands of frames wait,
   * ERR_IO when the link ends
   */
  async send(frame: { type: number; id: number; payload: Uint8Array }, signal?: AbortSignal): Promise<void> {
    const { type, id, payload } = frame
    expectInteger('type', type, 0, 255)
    expectInteger('id', id, 0, 0xffffffff)
    expectSignal('signal', signal)
    if (this.#ended) throw new SparkError('ERR_DISPOSED', 'no frame can follow end()')
    const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)
    await this.#sender.frame({ type, id, payload: bytes }, signal)
  }

  /** Frames of the other node, until it ends them. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Frame, void, void> {
    for (let frame = await this.#queue.next(); frame; frame = await this.#queue.next()) yield frame
  }

  /** The next frame; undefined after the last one. */
  async receive(): Promise<Frame | undefined> {
    return this.#queue.next()
  }

  /** Says that no frame follows from here; those of the other node still arrive. */
  async end(): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    await this.#sender.records([encodeControl(recordKinds.end)])
  }

  /** Ends the link in both directions; frames that were sent before arrive. */
  async close(reason = 'closed'): Promise<void> {
    if (this.#isClosed || this.#closing !== undefined) return
    this.#closing = reason
    const text = Buffer.from(reason.slice(0, 1000))
    const told = this.#sender.records([encodeControl(recordKinds.close, 0, 0, text)]).catch(() => {})
    await Promise.race([told, pause(lingerMs)])
    this.#finish(reason, undefined)
  }

  /** Ends the link at once. */
  destroy(error: Error): void {
    this.#finish(error.message, error)
    this.#pipe.duplex.destroy()
    this.#nextPipe?.duplex.destroy()
  }

  /** Milliseconds until a ping of 64 bytes came back. */
  async ping(signal?: AbortSignal): Promise<number> {
    return this.#pings.ping(signal)
  }

  /** Sends `bytes` that the peer drops; the milliseconds until it had the last one. */
  async probe(bytes: number, signal?: AbortSignal): Promise<number> {
    expectInteger('bytes', bytes, 1, 256 << 20)
    return this.#pings.probe(bytes, signal)
  }

  /** Asks the other node; answers and questions are JSON of up to 64 KiB. */
  async call(method: string, params: unknown, options: { timeoutMs?: number } = {}): Promise<unknown> {
    return this.#calls.call(method, params, options.timeoutMs ?? 10_000)
  }

  /** Answers questions of the other node. */
  handle(method: string, handler: CallHandler): void {
    this.#calls.handle(method, handler)
  }

  /** @internal asked before each question of the other node is answered; what it throws is the answer. */
  limitCalls(admit: () => Promise<void>): void {
    this.#calls.limit(admit)
  }

  /** @internal hears of each frame of 1 MiB and more that was sent, in bytes and milliseconds. */
  set onTransfer(hear: (bytes: number, milliseconds: number) => void) {
    this.#onTransfer = hear
  }

  /** @internal whether the keys are as old as they may get; `slack`: times the limits. */
  needsNewKeys(slack = 1): boolean {
    const { rekeyMs, rekeyBytes } = this.#limits
    const bytes = this.counts.bytesSent + this.counts.bytesReceived - this.#received.ofOldPipes
    const old = performance.now() - this.#since >= rekeyMs * slack || bytes >= rekeyBytes * slack
    return old && !this.#nextPipe && !this.#isClosed
  }

  /** @internal goes on over `pipe`, whose peer is the same node: no frame is lost, none overtakes another. */
  async moveTo(pipe: Pipe, peer: Peer): Promise<void> {
    pipe.duplex.on('error', () => {})
    if (this.#nextPipe) await this.#lastMove()
    if (this.#isClosed) return void pipe.duplex.destroy()
    this.#nextPipe = pipe
    this.#peer = peer
    await this.#sender.moveTo(pipe.duplex, encodeControl(recordKinds.switch))
    this.#writesNext = true
    if (this.#switched) this.#readNext()
  }

  /** A peer that reads fast may move on while this node still reads what came before its last move. */
  #lastMove(): Promise<void> {
    if (this.#moved) throw new SparkError('ERR_BUSY', 'the link has two connections to move to')
    return new Promise(resolve => {
      this.#moved = resolve
    })
  }

  #hasMoved(): void {
    this.#moved?.()
    this.#moved = undefined
  }

  #control(record: Buffer): void {
    try {
      this.#sender.control(record)
    } catch (error) {
      this.destroy(error as Error)
    }
  }

  #attach(pipe: Pipe): RecordReader {
    const reader = new RecordReader({
      begins: total => this.#queue.expect(total),
      frame: frame => {
        this.#received.frames++
        this.#queue.push(frame)
      },
      control: (header, body) => this.#record(header, body),
      probe: (header, bytes, complete) => this.#pings.probed(header, bytes, complete),
    })
    const lost = (error?: Error): void => {
      if (pipe === this.#pipe) this.#lost(error)
    }
    for (const event of ['error', 'close', 'end']) pipe.duplex.on(event, lost)
    pipe.duplex.on('data', (chunk: Buffer) => {
      this.#heard = performance.now()
      this.#received.bytes += chunk.length
      try {
        reader.push(chunk)
      } catch (error) {
        this.destroy(error as Error)
      }
    })
    return reader
  }

  #record({ kind, id, total }: RecordHeader, body: Buffer): void {
    if (kind === recordKinds.ping) this.#control(encodeControl(recordKinds.pong, id, 0, body.subarray(0, 48)))
    else if (kind === recordKinds.pong || kind === recordKinds.probed) this.#pings.answered(id)
    else if (kind === recordKinds.ack) this.#sender.acknowledge(id, total)
    else if (kind === recordKinds.end) this.#queue.end()
    else if (kind === recordKinds.close) this.#finish(body.toString('utf8', 0, 1000), undefined, true)
    else if (kind === recordKinds.call) this.#calls.asked(id, body)
    else if (kind === recordKinds.reply) this.#calls.answered(id, body)
    else if (kind === recordKinds.switch) this.#peerSwitched()
    else throw new SparkError('ERR_FORMAT', `a record of kind ${kind} comes after the start`)
  }

  #peerSwitched(): void {
    this.#switched = true
    this.#reader.stop()
    if (this.#writesNext) this.#readNext()
  }

  /** The peer writes to the next connection from now on, and so does this node. */
  #readNext(): void {
    const old = this.#pipe.duplex
    this.#pipe = this.#nextPipe!
    this.#nextPipe = undefined
    this.#switched = false
    this.#writesNext = false
    this.#connections++
    this.#since = performance.now()
    this.#received.ofOldPipes = this.counts.bytesSent + this.counts.bytesReceived
    this.#reader = this.#attach(this.#pipe)
    old.end() // it closes when the peer, which has to read its mark first, ends it too
    setTimeout(() => old.destroy(), this.#limits.stallMs).unref()
    this.#hasMoved()
  }

  /** Keeps the link alive, ends it where the peer is silent or slow, or its keys too old. */
  #check(): void {
    const now = performance.now()
    const { keepAliveMs, stallMs } = this.#limits
    const silent = now - this.#heard
    if (silent > keepAliveMs * 3)
      this.destroy(
        new SparkError(
          'ERR_IO',
          `node ${this.peer.nodeId} gave no sign of life for ${Math.round(silent)} ms`,
        ),
      )
    else if (silent > keepAliveMs) this.#pings.ping().catch(() => {})
    const unfinished = this.#reader.unfinished
    const { frames } = this.#received
    if (unfinished === undefined || this.#stalling?.received !== frames)
      this.#stalling = { received: frames, deadline: now + stallMs + (unfinished ?? 0) / 65.536 }
    else if (now > this.#stalling.deadline)
      this.destroy(
        new SparkError('ERR_BUSY', `a frame of node ${this.peer.nodeId} did not end in ${stallMs} ms`),
      )
    if (this.needsNewKeys(2))
      this.destroy(new SparkError('ERR_IO', 'the keys of the link are too old and were not renewed'))
  }

  #lost(cause?: Error): void {
    if (this.#closing !== undefined) this.#finish(this.#closing, undefined)
    if (this.#isClosed) return
    const why = cause instanceof Error ? `: ${cause.message}` : ' without a word'
    this.#finish(
      'lost',
      new SparkError('ERR_IO', `the connection to node ${this.peer.nodeId} ended${why}`, { cause }),
    )
    this.#pipe.duplex.destroy()
  }

  #finish(reason: string, error: Error | undefined, byPeer = false): void {
    if (this.#isClosed) return
    this.#isClosed = true
    clearInterval(this.#watch)
    this.#reader.stop()
    const end =
      error ?? new SparkError('ERR_IO', `the link to node ${this.peer.nodeId} was closed: ${reason}`)
    this.#sender.fail(end, byPeer && !error)
    this.#calls.fail(end)
    this.#pings.fail(end)
    this.#queue.end(error || byPeer ? end : undefined)
    for (const pipe of [this.#pipe, this.#nextPipe]) {
      pipe?.duplex.end()
      const { duplex } = pipe ?? {}
      if (duplex) setTimeout(() => duplex.destroy(), lingerMs).unref()
    }
    this.#hasMoved()
    this.#resolveClosed({ reason, error })
  }
}

const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms).unref())
