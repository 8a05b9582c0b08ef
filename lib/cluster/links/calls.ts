// calls.ts: questions that two nodes ask each other over their link: small JSON, few at a time.
import { SparkError } from '../../core/errors.js'
import { debug } from '../../core/log.js'
import { controlBytes, encodeControl, recordKinds } from './record.js'

const maxOpen = 64

/** A link carries questions before both of its ends have said what they answer. */
const settlingMs = 1000

/** Answers a question: what it returns must be JSON. */
export type CallHandler = (params: unknown) => unknown

interface OpenCall {
  readonly resolve: (result: unknown) => void
  readonly reject: (error: Error) => void
  readonly timer: NodeJS.Timeout
}

/** Both sides of the questions of one link. */
export class Calls {
  readonly #write: (record: Buffer) => void
  readonly #handlers = new Map<string, CallHandler>()
  readonly #expected = new Map<string, ((handler: CallHandler) => void)[]>()
  readonly #open = new Map<number, OpenCall>()
  readonly #settled = performance.now() + settlingMs
  #admit: (() => Promise<void>) | undefined
  #answering = 0
  #nextId = 1
  #error: Error | undefined

  constructor(write: (record: Buffer) => void) {
    this.#write = write
  }

  handle(method: string, handler: CallHandler): void {
    this.#handlers.set(method, handler)
    for (const told of this.#expected.get(method) ?? []) told(handler)
    this.#expected.delete(method)
  }

  /** Asks `admit` before each answer. */
  limit(admit: () => Promise<void>): void {
    this.#admit = admit
  }

  /** @throws SparkError ERR_BUSY, ERR_IO without an answer, ERR_UNSUPPORTED where the peer knows no such question */
  call(method: string, params: unknown, timeoutMs: number): Promise<unknown> {
    if (this.#error) return Promise.reject(this.#error)
    if (this.#open.size >= maxOpen)
      return Promise.reject(new SparkError('ERR_BUSY', `${maxOpen} questions are open`))
    const body = Buffer.from(JSON.stringify({ method, params }))
    if (body.length > controlBytes)
      return Promise.reject(
        new SparkError('ERR_RANGE', `${method} asks with ${body.length} bytes; at most ${controlBytes}`),
      )
    const id = this.#nextId++ >>> 0
    return new Promise((resolve, reject) => {
      const late = (): void =>
        this.#settle(id)?.reject(new SparkError('ERR_IO', `no answer to ${method} in ${timeoutMs} ms`))
      const timer = setTimeout(late, timeoutMs)
      timer.unref()
      this.#open.set(id, { resolve, reject, timer })
      this.#write(encodeControl(recordKinds.call, id, 0, body))
    })
  }

  /** The peer asks. */
  asked(id: number, body: Buffer): void {
    if (this.#answering >= maxOpen)
      throw new SparkError('ERR_FORMAT', `the peer asks over ${maxOpen} questions at once`)
    this.#answering++
    this.#answer(body)
      .then(answer => this.#reply(id, answer))
      .catch(error => debug(`a question of the other node has no answer: ${error}`))
      .finally(() => {
        this.#answering--
      })
  }

  /** The peer answered. */
  answered(id: number, body: Buffer): void {
    const open = this.#settle(id)
    if (!open) return
    const answer = parse(body) as { result?: unknown; unknown?: boolean; error?: string } | undefined
    if (answer?.unknown)
      open.reject(new SparkError('ERR_UNSUPPORTED', 'the other node does not know this question'))
    else if (typeof answer !== 'object' || answer === null || typeof answer.error === 'string')
      open.reject(
        new SparkError(
          'ERR_IO',
          `the other node answers: ${answer?.error?.slice(0, 200) ?? 'nothing that can be read'}`,
        ),
      )
    else open.resolve(answer.result)
  }

  /** Every wait ends with `error`. */
  fail(error: Error): void {
    this.#error = error
    for (const id of [...this.#open.keys()]) this.#settle(id)!.reject(error)
  }

  #settle(id: number): OpenCall | undefined {
    const open = this.#open.get(id)
    clearTimeout(open?.timer)
    this.#open.delete(id)
    return open
  }

  async #answer(body: Buffer): Promise<unknown> {
    const question = parse(body) as { method?: unknown; params?: unknown } | undefined
    const method = question?.method
    const handler = typeof method === 'string' ? await this.#handlerOf(method) : undefined
    if (!handler) return { unknown: true }
    try {
      await this.#admit?.()
      return { result: (await handler(question!.params)) ?? null }
    } catch (error) {
      return { error: error instanceof SparkError ? error.message : 'it failed' }
    }
  }

  /** Waits for it while the link is new. */
  #handlerOf(method: string): Promise<CallHandler | undefined> {
    const left = this.#settled - performance.now()
    const known = this.#handlers.get(method)
    if (known || left <= 0) return Promise.resolve(known)
    return new Promise(resolve => {
      this.#expected.set(method, [...(this.#expected.get(method) ?? []), resolve])
      setTimeout(() => resolve(undefined), left).unref()
    })
  }

  #reply(id: number, answer: unknown): void {
    const body = Buffer.from(JSON.stringify(answer))
    const fits = body.length <= controlBytes
    const sent = fits ? body : Buffer.from(JSON.stringify({ error: 'the answer is too long' }))
    this.#write(encodeControl(recordKinds.reply, id, 0, sent))
  }
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString())
  } catch {
    return undefined
  }
}
