// chunk-link.ts: chunks over a link: each end asks the other for what it has.
//
//   ask     hashes, 32 bytes each            -> have   a bit for each hash, first the lowest one
//   get     hash | u32 bytes, big-endian     -> piece  up to 1 MiB of the chunk, in order, or `none`
//   cancel  nothing                             the chunk of this id is not wanted any more
//
// An answer has the id of its question. The window of the link bounds what is on its way.
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import type { Frame } from '../links/record.js'
import { maxChunkBytes } from './manifest.js'
import type { ChunkSource } from './sources.js'
import type { WeightStore } from './weight-store.js'

/** Types of the frames. */
export const chunkFrames = {
  ask: 0x40,
  have: 0x41,
  get: 0x42,
  piece: 0x43,
  none: 0x44,
  cancel: 0x45,
} as const

/** Bytes of a frame. */
const pieceBytes = 1 << 20
/** Hashes of one question. */
const maxAsked = pieceBytes / 32
/** Chunks that a peer may ask for before it has the first of them. */
const maxWaiting = 1024
/** Chunks that are read and sent at a time: one is read while another is sent. */
const workers = 2
/** How long the chunks that a peer gets count as one transfer, ms. */
const tellMs = 1000

/** What chunks travel over: a link, or the part of one. */
export interface ChunkChannel extends AsyncIterable<Frame> {
  /** Who is at the other end. */
  readonly peer: {
    /** Its id. */
    readonly nodeId: string
  }
  /** Sends a frame; waits while the receiver has as much as it takes. */
  send(frame: { type: number; id: number; payload: Uint8Array }, signal?: AbortSignal): Promise<void>
  /** Ends the channel because of what the peer did. */
  destroy(error: Error): void
}

interface Question {
  /** How many bytes the answer has. */
  readonly bytes: number
  readonly type: number
  answer: Buffer | undefined
  filled: number
  readonly resolve: (answer: Buffer | undefined) => void
  readonly reject: (error: Error) => void
}

interface Order {
  readonly id: number
  readonly hash: string
  readonly bytes: number
}

/**
 * Both ends of a link over which chunks travel. Nothing else may read from the channel.
 * @example
 * const source = serveChunks(link, store)
 * await fetchFile(manifest, [source], store)
 */
export class ChunkLink implements ChunkSource {
  /** Id of the node at the other end. */
  readonly name: string
  /** Resolves when the link ended. */
  readonly closed: Promise<void>
  readonly #channel: ChunkChannel
  readonly #store: WeightStore | undefined
  readonly #gave: ((bytes: number) => void) | undefined
  readonly #questions = new Map<number, Question>()
  readonly #orders: Order[] = []
  #working = 0
  /** Bytes of chunks that were sent and not told of. */
  #given = 0
  #telling: NodeJS.Timeout | undefined
  #answering = 0
  #nextId = 1
  #ended: Error | undefined

  /** @internal */
  constructor(
    channel: ChunkChannel,
    store: WeightStore | undefined,
    gave: ((bytes: number) => void) | undefined,
  ) {
    this.name = channel.peer.nodeId
    this.#channel = channel
    this.#store = store
    this.#gave = gave
    this.closed = this.#read()
  }

  /** Which of these chunks the other node has. @throws SparkError ERR_IO where the link ends, ERR_FORMAT */
  async have(hashes: readonly string[], signal?: AbortSignal): Promise<boolean[]> {
    const found: boolean[] = []
    for (let at = 0; at < hashes.length; at += maxAsked) {
      const asked = hashes.slice(at, at + maxAsked)
      const payload = Buffer.from(asked.join(''), 'hex')
      const bits = await this.#ask(chunkFrames.ask, payload, Math.ceil(asked.length / 8), signal)
      for (const i of asked.keys()) found.push(bits !== undefined && (bits[i >> 3]! & (1 << (i & 7))) !== 0)
    }
    return found
  }

  /** A chunk of so many bytes, as the other node sends it. @throws SparkError ERR_IO where the link ends, ERR_FORMAT */
  async get(hash: string, bytes: number, signal?: AbortSignal): Promise<Uint8Array | undefined> {
    const payload = Buffer.alloc(36)
    payload.write(hash, 'hex')
    payload.writeUInt32BE(bytes, 32)
    return this.#ask(chunkFrames.get, payload, bytes, signal)
  }

  #ask(type: number, payload: Buffer, bytes: number, signal?: AbortSignal): Promise<Buffer | undefined> {
    if (this.#ended) return Promise.reject(this.#ended)
    signal?.throwIfAborted()
    const id = this.#nextId
    this.#nextId = (id % 0xffffffff) + 1
    return new Promise((resolve, reject) => {
      const stop = (): void => {
        if (!this.#questions.delete(id)) return
        this.#send({ type: chunkFrames.cancel, id, payload: Buffer.alloc(0) })
        reject(signal!.reason)
      }
      const settle = (): void => signal?.removeEventListener('abort', stop)
      signal?.addEventListener('abort', stop)
      this.#questions.set(id, {
        type,
        bytes,
        answer: undefined,
        filled: 0,
        resolve: answer => {
          settle()
          resolve(answer)
        },
        reject: error => {
          settle()
          reject(error)
        },
      })
      this.#send({ type, id, payload })
    })
  }

  #send(frame: { type: number; id: number; payload: Uint8Array }): void {
    this.#channel.send(frame).catch(error => this.#end(error))
  }

  async #read(): Promise<void> {
    try {
      for await (const frame of this.#channel) this.#frame(frame)
      this.#end(new SparkError('ERR_IO', `the link to node ${this.name} has ended`))
    } catch (error) {
      this.#end(error as Error)
      if (error instanceof SparkError && error.code === 'ERR_FORMAT') this.#channel.destroy(error)
    }
  }

  #end(error: Error): void {
    this.#ended ??= error
    this.#orders.length = 0
    this.#tell()
    for (const question of this.#questions.values()) question.reject(this.#ended)
    this.#questions.clear()
  }

  #frame({ type, id, payload }: Frame): void {
    if (type === chunkFrames.ask) this.#asked(id, payload)
    else if (type === chunkFrames.get) this.#ordered(id, payload)
    else if (type === chunkFrames.cancel) this.#cancelled(id)
    else if (type === chunkFrames.none) this.#settle(id)?.resolve(undefined)
    else if (type === chunkFrames.have || type === chunkFrames.piece) this.#answered(type, id, payload)
    else throw this.#fault(`sent a frame of type ${type} where chunks travel`)
  }

  #answered(type: number, id: number, payload: Buffer): void {
    const question = this.#questions.get(id)
    if (!question) return
    const wanted = question.type === chunkFrames.ask ? chunkFrames.have : chunkFrames.piece
    const { bytes, filled } = question
    if (type !== wanted || filled + payload.length > bytes || (payload.length === 0 && bytes > 0))
      throw this.#fault(`answers ${bytes} bytes with ${filled + payload.length}`)
    question.answer ??= Buffer.allocUnsafeSlow(bytes)
    payload.copy(question.answer, filled)
    question.filled += payload.length
    if (question.filled === bytes) this.#settle(id)!.resolve(question.answer)
  }

  #settle(id: number): Question | undefined {
    const question = this.#questions.get(id)
    this.#questions.delete(id)
    return question
  }

  #asked(id: number, payload: Buffer): void {
    if (payload.length % 32 !== 0 || payload.length > pieceBytes)
      throw this.#fault(`asks with ${payload.length} bytes`)
    if (this.#answering >= maxWaiting) throw this.#fault('asks and reads no answers')
    const count = payload.length / 32
    const bits = Buffer.alloc(Math.ceil(count / 8))
    for (let i = 0; i < count; i++) {
      const hash = payload.toString('hex', i * 32, i * 32 + 32)
      if (this.#store?.has(hash)) bits[i >> 3]! |= 1 << (i & 7)
    }
    this.#answering++
    const answer = { type: chunkFrames.have, id, payload: bits }
    this.#channel
      .send(answer)
      .catch(error => this.#end(error))
      .finally(() => {
        this.#answering--
      })
  }

  #ordered(id: number, payload: Buffer): void {
    if (payload.length !== 36) throw this.#fault(`asks for a chunk with ${payload.length} bytes`)
    const bytes = payload.readUInt32BE(32)
    if (bytes > maxChunkBytes)
      throw this.#fault(`asks for a chunk of ${bytes} bytes; at most ${maxChunkBytes}`)
    if (this.#orders.length >= maxWaiting)
      throw this.#fault(`asks for more than ${maxWaiting} chunks at once`)
    this.#orders.push({ id, hash: payload.toString('hex', 0, 32), bytes })
    if (this.#working < workers) void this.#work()
  }

  #cancelled(id: number): void {
    const at = this.#orders.findIndex(order => order.id === id)
    if (at >= 0) this.#orders.splice(at, 1)
  }

  async #work(): Promise<void> {
    this.#working++
    try {
      for (let order = this.#orders.shift(); order; order = this.#orders.shift()) await this.#serve(order)
    } catch (error) {
      this.#end(error as Error)
    } finally {
      this.#working--
    }
  }

  async #serve({ id, hash, bytes }: Order): Promise<void> {
    const chunk = await this.#store?.read(hash).catch(error => debug((error as Error).message))
    if (chunk?.byteLength !== bytes) {
      await this.#channel.send({ type: chunkFrames.none, id, payload: Buffer.alloc(0) })
      return
    }
    for (let at = 0; at < bytes || at === 0; at += pieceBytes)
      await this.#channel.send({ type: chunkFrames.piece, id, payload: chunk.subarray(at, at + pieceBytes) })
    this.#given += bytes
    this.#telling ??= setTimeout(() => this.#tell(), tellMs).unref()
  }

  /** Tells of what was given since it was told last. */
  #tell(): void {
    clearTimeout(this.#telling)
    this.#telling = undefined
    if (this.#given > 0) this.#gave?.(this.#given)
    this.#given = 0
  }

  #fault(what: string): SparkError {
    return new SparkError('ERR_FORMAT', `node ${this.name} ${what}`)
  }
}

/**
 * Serves the chunks of a store over a link until it ends; what it returns is a source of those of the other node.
 * @param store - undefined: this node has none to give
 * @param gave - hears how many bytes of chunks the other node got, once a second while it gets some
 */
export function serveChunks(
  link: ChunkChannel,
  store: WeightStore | undefined,
  gave?: (bytes: number) => void,
): ChunkLink {
  return new ChunkLink(link, store, gave)
}
