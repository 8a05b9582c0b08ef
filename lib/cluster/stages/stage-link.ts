// stage-link.ts: questions with tensors between two nodes, and their answers.
import { SparkError } from '../../core/errors.js'
import type { LinkChannel } from '../links/channels.js'
import type { Frame } from '../links/record.js'
import { encodeMessage, type Message, PartialMessage } from './messages.js'

/** Types of the frames. */
export const stageFrames = { ask: 0x50, reply: 0x51, cancel: 0x52, tell: 0x53 } as const

/** Those of the channel of a {@link StageLink}. */
export const stageChannel: readonly [number, number] = [stageFrames.ask, stageFrames.tell]

/** Questions that a node asks at once. */
const maxOpen = 256
/** Those that it gets at once: the other node no longer counts what it has cancelled, which may take a while to end here. */
const maxAnswering = 4 * maxOpen

/** Hears of what happens before an answer is there. */
export type Listener = (words: Message['words']) => void

/** Answers a question of the other node. */
export type Answerer = (question: Message, signal: AbortSignal, tell: Listener) => Promise<Message>

interface OpenQuestion {
  readonly resolve: (answer: Message) => void
  readonly reject: (error: Error) => void
  readonly onTold: Listener | undefined
}

/** Puts messages together, the frames of each of which follow each other. */
class Assembly {
  #partial: { readonly id: number; readonly message: PartialMessage } | undefined

  /** Takes a frame. The message, once it is whole. @throws SparkError ERR_FORMAT */
  take(id: number, payload: Uint8Array): Message | undefined {
    if (this.#partial && this.#partial.id !== id)
      throw new SparkError('ERR_FORMAT', `message ${id} begins within message ${this.#partial.id}`)
    if (this.#partial) this.#partial.message.add(payload)
    else this.#partial = { id, message: new PartialMessage(payload) }
    const { whole } = this.#partial.message
    if (whole) this.#partial = undefined
    return whole
  }
}

/** Both ends of the questions of a link. */
export class StageLink {
  readonly #channel: LinkChannel
  readonly #answer: Answerer
  readonly #open = new Map<number, OpenQuestion>()
  /** Who waits until a question has ended, so that it can ask its own. */
  readonly #waiting = new Set<() => void>()
  readonly #questions = new Assembly()
  readonly #replies = new Assembly()
  readonly #told = new Assembly()
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
   * Asks the other node, once few enough questions are open.
   * @throws SparkError what the other node answers; ERR_IO when the link ends before; the reason of the signal
   */
  async ask(question: Message, signal?: AbortSignal, onTold?: Listener): Promise<Message> {
    signal?.throwIfAborted()
    while (this.#open.size >= maxOpen && !this.#ended) await this.#slot(signal)
    if (signal?.aborted) this.#wake()
    signal?.throwIfAborted()
    if (this.#ended) throw this.#ended
    const id = this.#nextId++ >>> 0
    const answer = new Promise<Message>((resolve, reject) => {
      this.#open.set(id, { resolve, reject, onTold })
    })
    const aborted = (): void => {
      this.#send(stageFrames.cancel, id, [new Uint8Array(0)])
      this.#settle(id)?.reject(signal!.reason)
    }
    signal?.addEventListener('abort', aborted, { once: true })
    this.#send(stageFrames.ask, id, encodeMessage(question))
    return answer.finally(() => signal?.removeEventListener('abort', aborted))
  }

  #slot(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const wake = (): void => {
        signal?.removeEventListener('abort', aborted)
        resolve()
      }
      const aborted = (): void => {
        this.#waiting.delete(wake)
        reject(signal!.reason)
      }
      this.#waiting.add(wake)
      signal?.addEventListener('abort', aborted, { once: true })
    })
  }

  /** Lets the next question go on. */
  #wake(): void {
    const [next] = this.#waiting
    if (!next) return
    this.#waiting.delete(next)
    next()
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
    if (this.#open.delete(id)) this.#wake()
    return open
  }

  async #read(): Promise<void> {
    try {
      for await (const frame of this.#channel) this.#take(frame)
      this.#end(new SparkError('ERR_IO', `the link to node ${this.nodeId} has ended`))
    } catch (error) {
      this.#end(
        new SparkError('ERR_IO', `the link to node ${this.nodeId} ended: ${(error as Error).message}`, {
          cause: error,
        }),
      )
    }
  }

  /** A link whose frames nobody reads any more would look alive. */
  #take({ type, id, payload }: Frame): void {
    try {
      if (type === stageFrames.ask) this.#takeQuestion(id, payload)
      else if (type === stageFrames.reply) this.#takeReply(id, payload)
      else if (type === stageFrames.tell) this.#takeTold(id, payload)
      else if (type === stageFrames.cancel) this.#cancelled(id)
      else throw new SparkError('ERR_FORMAT', `a frame of type ${type} comes among stages`)
    } catch (error) {
      this.#channel.destroy(error as Error)
      throw error
    }
  }

  #end(error: Error): void {
    this.#ended ??= error
    for (const id of [...this.#open.keys()]) this.#settle(id)!.reject(error)
    while (this.#waiting.size > 0) this.#wake()
    for (const controller of this.#answering.values()) controller.abort(error)
  }

  #takeQuestion(id: number, payload: Uint8Array): void {
    if (this.#answering.size >= maxAnswering)
      throw new SparkError('ERR_FORMAT', `node ${this.nodeId} asks over ${maxAnswering} questions at once`)
    if (this.#answering.has(id))
      throw new SparkError('ERR_FORMAT', `node ${this.nodeId} asks question ${id} twice`)
    const whole = this.#questions.take(id, payload)
    if (whole) void this.#reply(id, whole)
  }

  async #reply(id: number, question: Message): Promise<void> {
    const controller = new AbortController()
    this.#answering.set(id, controller)
    const tell: Listener = words => {
      if (this.#answering.get(id) === controller && !this.#ended)
        this.#send(stageFrames.tell, id, encodeMessage({ words, tensors: {} }))
    }
    let payloads: Iterable<Uint8Array>
    try {
      payloads = [...encodeMessage(await this.#answer(question, controller.signal, tell))]
    } catch (error) {
      const { code, message } =
        error instanceof SparkError ? error : { code: 'ERR_INTERNAL', message: `${error}` }
      payloads = [...encodeMessage({ words: { error: { code, message } }, tensors: {} })]
    }
    this.#answering.delete(id)
    if (!this.#ended) this.#send(stageFrames.reply, id, payloads)
  }

  #takeTold(id: number, payload: Uint8Array): void {
    const whole = this.#told.take(id, payload)
    if (whole) this.#open.get(id)?.onTold?.(whole.words)
  }

  #takeReply(id: number, payload: Uint8Array): void {
    const whole = this.#replies.take(id, payload)
    // Undefined for one that was cancelled.
    const open = whole && this.#settle(id)
    if (!open) return
    const { error } = whole.words
    if (error === undefined) open.resolve(whole)
    else open.reject(this.#errorOf(error))
  }

  #errorOf(told: unknown): SparkError {
    const { code, message } = (told ?? {}) as Record<string, unknown>
    const isError = typeof code === 'string' && typeof message === 'string'
    return isError
      ? new SparkError(code as SparkError['code'], `node ${this.nodeId}: ${message}`)
      : new SparkError('ERR_IO', `node ${this.nodeId} failed and does not say why`)
  }

  #cancelled(id: number): void {
    this.#answering.get(id)?.abort(new SparkError('ERR_IO', 'the other node does not want it any more'))
  }
}
