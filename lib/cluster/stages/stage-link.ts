// stage-link.ts: questions with tensors between two nodes, and their answers.
import { SparkError } from '../../core/errors.js'
import type { LinkChannel } from '../links/channels.js'
import { encodeMessage, type Message, PartialMessage } from './messages.js'

/** Types of the frames. */
export const stageFrames = { ask: 0x50, reply: 0x51, cancel: 0x52 } as const

/** Questions that are open at once in one direction. */
const maxOpen = 256

/** Answers a question of the other node. */
export type Answerer = (question: Message, signal: AbortSignal) => Promise<Message>

interface OpenQuestion {
  readonly resolve: (answer: Message) => void
  readonly reject: (error: Error) => void
  partial: PartialMessage | undefined
}

/** Both ends of the questions of a link. */
export class StageLink {
  readonly #channel: LinkChannel
  readonly #answer: Answerer
  readonly #open = new Map<number, OpenQuestion>()
  readonly #asked = new Map<number, PartialMessage>()
  readonly #answering = new Map<number, AbortController>()
  /** Frames of one message follow each other: the other node has one of each direction at a time. */
  #turn: Promise<unknown> = Promise.resolve()
  #nextId = 1
  #ended: Error | undefined

  constructor(channel: LinkChannel, answer: Answerer) {
    this.#channel = channel
    this.#answer = answer
    void this.#read()
  }

  /** The node at the other end. */
  get nodeId(): string {
    return this.#channel.peer.nodeId
  }

  /**
   * Asks the other node.
   * @throws SparkError what the other node answers; ERR_IO when the link ends before; the reason of the signal
   */
  async ask(question: Message, signal?: AbortSignal): Promise<Message> {
    signal?.throwIfAborted()
    if (this.#ended) throw this.#ended
    if (this.#open.size >= maxOpen) throw new SparkError('ERR_BUSY', `${maxOpen} questions are open`)
    const id = this.#nextId++ >>> 0
    const answer = new Promise<Message>((resolve, reject) => {
      this.#open.set(id, { partial: undefined, resolve, reject })
    })
    const aborted = (): void => {
      this.#send(stageFrames.cancel, id, [new Uint8Array(0)])
      this.#settle(id)?.reject(signal!.reason)
    }
    signal?.addEventListener('abort', aborted, { once: true })
    this.#send(stageFrames.ask, id, encodeMessage(question))
    return answer.finally(() => signal?.removeEventListener('abort', aborted))
  }

  #send(type: number, id: number, payloads: Iterable<Uint8Array>): void {
    const send = async (): Promise<void> => {
      for (const payload of payloads) await this.#channel.send({ type, id, payload })
    }
    const sent = this.#turn.then(send)
    this.#turn = sent.catch(() => {})
    sent.catch(error => this.#settle(id)?.reject(error))
  }

  #settle(id: number): OpenQuestion | undefined {
    const open = this.#open.get(id)
    this.#open.delete(id)
    return open
  }

  async #read(): Promise<void> {
    try {
      for await (const { type, id, payload } of this.#channel) {
        if (type === stageFrames.ask) this.#takeQuestion(id, payload)
        else if (type === stageFrames.reply) this.#takeReply(id, payload)
        else if (type === stageFrames.cancel) this.#cancelled(id)
        else throw new SparkError('ERR_FORMAT', `a frame of type ${type} comes among stages`)
      }
      this.#end(new SparkError('ERR_IO', `the link to node ${this.nodeId} has ended`))
    } catch (error) {
      if (error instanceof SparkError && error.code === 'ERR_FORMAT') this.#channel.destroy(error)
      this.#end(
        new SparkError('ERR_IO', `the link to node ${this.nodeId} ended: ${(error as Error).message}`, {
          cause: error,
        }),
      )
    }
  }

  #end(error: Error): void {
    this.#ended ??= error
    for (const id of [...this.#open.keys()]) this.#settle(id)!.reject(error)
    for (const controller of this.#answering.values()) controller.abort(error)
    this.#asked.clear()
  }

  #takeQuestion(id: number, payload: Uint8Array): void {
    const known = this.#asked.get(id)
    if (!known && this.#asked.size + this.#answering.size >= maxOpen)
      throw new SparkError('ERR_FORMAT', `node ${this.nodeId} asks over ${maxOpen} questions at once`)
    const partial = known ?? new PartialMessage(payload)
    if (known) known.add(payload)
    this.#asked.set(id, partial)
    const { whole } = partial
    if (!whole) return
    this.#asked.delete(id)
    void this.#reply(id, whole)
  }

  async #reply(id: number, question: Message): Promise<void> {
    const controller = new AbortController()
    this.#answering.set(id, controller)
    let payloads: Iterable<Uint8Array>
    try {
      payloads = [...encodeMessage(await this.#answer(question, controller.signal))]
    } catch (error) {
      const { code, message } =
        error instanceof SparkError ? error : { code: 'ERR_INTERNAL', message: `${error}` }
      payloads = [...encodeMessage({ words: { error: { code, message } }, tensors: {} })]
    }
    this.#answering.delete(id)
    if (!this.#ended) this.#send(stageFrames.reply, id, payloads)
  }

  #takeReply(id: number, payload: Uint8Array): void {
    const open = this.#open.get(id)
    if (!open) return // it was cancelled
    if (open.partial) open.partial.add(payload)
    else open.partial = new PartialMessage(payload)
    const { whole } = open.partial
    if (!whole) return
    this.#settle(id)
    const { code, message } = (whole.words.error ?? {}) as { code?: string; message?: string }
    if (code === undefined) open.resolve(whole)
    else open.reject(new SparkError(code as SparkError['code'], `node ${this.nodeId}: ${message}`))
  }

  #cancelled(id: number): void {
    this.#asked.delete(id)
    this.#answering.get(id)?.abort(new SparkError('ERR_IO', 'the other node does not want it any more'))
  }
}
