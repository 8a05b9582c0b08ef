// generation.ts: a text that is being generated, token by token.
import { SparkError } from '../../core/errors.js'
import type { FinishReason, GeneratedText, GeneratedToken } from '../text-options.js'

/** What produces the tokens of a text. */
export type GenerationSource = (
  push: (token: GeneratedToken) => void,
  signal: AbortSignal,
) => Promise<GenerationEnd>

/** The end of a text. */
export interface GenerationEnd {
  readonly finishReason: FinishReason
  /** Text that was held back. */
  readonly rest: string
  readonly stop?: string | undefined
  readonly promptTokens: number
  readonly cachedTokens: number
}

/**
 * A text that is being generated. Iterating gives its pieces as they come, {@link Generation.tokens} its tokens, and
 * {@link Generation.result} waits for all of it. It begins with the first of these calls; leaving a loop early ends it.
 * @example
 * for await (const piece of model.generate('Once upon a time', { maxTokens: 50 })) console.log(piece)
 */
export class Generation implements AsyncIterable<string> {
  readonly #source: GenerationSource
  readonly #abort = new AbortController()
  readonly #tokens: GeneratedToken[] = []
  #wake: (() => void)[] = []
  #work: Promise<GenerationEnd> | undefined
  #end: GenerationEnd | undefined
  #hasFailed = false
  #isIterated = false
  #onStart: () => void = () => undefined
  #onEnd: (text: string) => void = () => undefined

  /** @internal */
  constructor(source: GenerationSource) {
    this.#source = source
  }

  /**
   * Calls back when the work begins.
   * @internal
   */
  onStart(callback: () => void): void {
    this.#onStart = callback
  }

  /**
   * Calls back with the text when the work has ended, well or not.
   * @internal
   */
  onEnd(callback: (text: string) => void): void {
    this.#onEnd = callback
  }

  /**
   * All of the text.
   * @throws SparkError as {@link TextModel.generate}; the reason of the signal when it is aborted
   */
  async result(): Promise<GeneratedText> {
    const { finishReason, rest, stop, promptTokens, cachedTokens } = await this.#start()
    const tokens = this.#tokens
    const text = this.#text + rest
    const ids = tokens.map(({ id }) => id)
    const logprobs = tokens.flatMap(({ logprob }) => (logprob === undefined ? [] : [logprob]))
    return {
      ...{ text, ids, finishReason, promptTokens, cachedTokens },
      ...(stop === undefined ? {} : { stop }),
      ...(logprobs.length > 0 ? { logprobs } : {}),
    }
  }

  /** The tokens so far. */
  get generated(): readonly GeneratedToken[] {
    return this.#tokens
  }

  /**
   * The tokens as they come. What was held back at the end is in {@link Generation.result} and in the pieces only.
   * @throws SparkError as {@link Generation.result}; ERR_ARGUMENT when it is iterated a second time
   */
  async *tokens(): AsyncGenerator<GeneratedToken, void, undefined> {
    if (this.#isIterated)
      throw new SparkError('ERR_ARGUMENT', 'a generation is iterated once: call generate() again')
    this.#isIterated = true
    const work = this.#start()
    try {
      for (let next = 0; ; ) {
        if (next < this.#tokens.length) yield this.#tokens[next++]!
        else if (this.#end || this.#hasFailed) break
        else await new Promise<void>(resolve => this.#wake.push(resolve))
      }
      await work
    } finally {
      // A loop that was left early has no use for the rest.
      if (!this.#end) this.#abort.abort()
    }
  }

  /** The pieces of the text as they come; none is empty, none ends within a character. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    for await (const { text } of this.tokens()) if (text !== '') yield text
    const rest = this.#end?.rest ?? ''
    if (rest !== '') yield rest
  }

  /** The text of the tokens so far. */
  get #text(): string {
    return this.#tokens.map(({ text }) => text).join('')
  }

  #start(): Promise<GenerationEnd> {
    this.#work ??= this.#run()
    // Who iterates learns of a failure when the tokens are used up.
    this.#work.catch(() => undefined)
    return this.#work
  }

  async #run(): Promise<GenerationEnd> {
    this.#onStart()
    try {
      const push = (token: GeneratedToken): void => {
        this.#tokens.push(token)
        this.#wakeAll()
      }
      this.#end = await this.#source(push, this.#abort.signal)
      return this.#end
    } catch (error) {
      this.#hasFailed = true
      throw error
    } finally {
      this.#onEnd(this.#text + (this.#end?.rest ?? ''))
      this.#wakeAll()
    }
  }

  #wakeAll(): void {
    const wake = this.#wake
    this.#wake = []
    for (const resolve of wake) resolve()
  }
}
