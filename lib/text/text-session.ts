// text-session.ts: a conversation with a language model.
import { argumentError, expectKnownOptions, expectObject, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import type { ChatMessage } from './chat-options.js'
import type { Generation } from './generation/generation.js'
import type { KeptCache } from './generation/kept-cache.js'
import type { GenerationOptions, TextInput } from './text-options.js'

/** Options of {@link TextModel.session}. */
export interface SessionOptions {
  /** What the conversation begins with, such as a system message. Default: nothing. */
  messages?: readonly ChatMessage[]
  /** Options of all answers, unless {@link TextSession.send} has others. */
  generation?: Omit<GenerationOptions, 'signal'>
}

/** What answers a conversation, and has keys and values of its tokens. */
export interface SessionModel {
  generate(input: TextInput, options: GenerationOptions): Generation
  /** Copies the keys and values of a conversation that the model has. */
  keep(messages: readonly ChatMessage[], options: GenerationOptions): Promise<KeptCache | undefined>
  /** Takes keys and values of a file, where the model would compute the same ones: how many tokens have them now. */
  restore(cache: KeptCache, file: string): Promise<number>
}

/**
 * A conversation: it knows the messages so far, and the model finds the keys and values of what they have in common with the next
 * turn. Made by {@link TextModel.session}.
 * @example
 * const session = model.session({ messages: [{ role: 'system', content: 'Answer in one sentence.' }] })
 * for await (const piece of session.send('Why is the sky blue?')) console.log(piece)
 * for await (const piece of session.send('And at sunset?')) console.log(piece)
 */
export class TextSession {
  readonly #model: SessionModel
  readonly #generation: GenerationOptions
  #messages: readonly ChatMessage[]
  #isAnswering = false

  /** @internal */
  constructor(model: SessionModel, options: SessionOptions = {}) {
    expectKnownOptions('options', options, ['messages', 'generation'])
    const { messages = [], generation = {} } = options
    if (!Array.isArray(messages)) throw argumentError('options.messages', 'a list of messages', messages)
    expectObject('options.generation', 'an object of options', generation)
    this.#model = model
    this.#messages = [...messages]
    this.#generation = generation
  }

  /** All messages so far. */
  get messages(): readonly ChatMessage[] {
    return this.#messages
  }

  /**
   * Adds a message and answers it. The answer becomes a message when it is complete; of one that is interrupted, what was said.
   * @param message - the text of a user, or any message, such as the result of a tool
   * @throws SparkError as {@link TextModel.generate}; ERR_BUSY while another answer is generated
   */
  send(message: string | ChatMessage, options: GenerationOptions = {}): Generation {
    const added = typeof message === 'string' ? { role: 'user', content: message } : message
    return this.#respond([...this.#messages, added], options)
  }

  /**
   * Takes the last answer back and generates another one.
   * @throws SparkError as {@link TextSession.send}; ERR_ARGUMENT when the last message is no answer
   */
  retry(options: GenerationOptions = {}): Generation {
    if (this.#messages.at(-1)?.role !== 'assistant')
      throw new SparkError('ERR_ARGUMENT', 'there is no answer that could be generated again')
    return this.#respond(this.#messages.slice(0, -1), options)
  }

  /** Takes the last message of a user back, and all behind it. False: there is none. */
  undo(): boolean {
    const index = this.#messages.findLastIndex(({ role }) => role === 'user')
    if (index < 0) return false
    this.#messages = this.#messages.slice(0, index)
    return true
  }

  /** Forgets all messages but those of the system in front. */
  clear(): void {
    const first = this.#messages.findIndex(({ role }) => role !== 'system')
    this.#messages = first < 0 ? this.#messages : this.#messages.slice(0, first)
  }

  /**
   * Writes the messages to a JSON file, or, where its name ends in `.safetensors`, with the keys and values that the model has of their
   * tokens. The file appears whole or not at all.
   * @throws SparkError ERR_IO, ERR_DISPOSED
   */
  async save(file: string): Promise<void> {
    expectText('file', file)
    const messages = this.#messages
    const { hasCache, writeSession } = await import('./session-file.js')
    const cache = hasCache(file) ? await this.#model.keep(messages, this.#generation) : undefined
    await writeSession(file, { messages, cache })
  }

  /**
   * Replaces the messages by those of a file of {@link TextSession.save}. Keys and values in it are used where the model would compute
   * the same ones: the same weights, the same options of loading, the same kind of processor. Otherwise the next answer computes them.
   * @returns tokens whose keys and values came with the file
   * @throws SparkError ERR_IO, ERR_FORMAT, ERR_DISPOSED
   */
  async restore(file: string): Promise<number> {
    expectText('file', file)
    const { readSession } = await import('./session-file.js')
    const { messages, cache } = await readSession(file)
    const restored = cache ? await this.#model.restore(cache, file) : 0
    this.#messages = messages
    return restored
  }

  #respond(messages: readonly ChatMessage[], options: GenerationOptions): Generation {
    if (this.#isAnswering)
      throw new SparkError('ERR_BUSY', 'an answer is being generated: wait for it, or end it by its signal')
    const generation = this.#model.generate(messages, { ...this.#generation, ...options })
    generation.onStart(() => {
      this.#isAnswering = true
    })
    generation.onEnd(text => {
      this.#isAnswering = false
      this.#messages = text === '' ? messages : [...messages, { role: 'assistant', content: text }]
    })
    return generation
  }
}
