// text-session.ts: a conversation with a language model.
import { argumentError, expectKnownOptions, expectObject, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { writeFileAtomic } from '../io/atomic-write.js'
import { readJson } from '../io/read-file.js'
import type { ChatMessage } from './chat-options.js'
import type { Generation } from './generation/generation.js'
import type { GenerationOptions, TextInput } from './text-options.js'

/** Options of {@link TextModel.session}. */
export interface SessionOptions {
  /** What the conversation begins with, such as a system message. Default: nothing. */
  messages?: readonly ChatMessage[]
  /** Options of all answers, unless {@link TextSession.send} has others. */
  generation?: Omit<GenerationOptions, 'signal'>
}

/** What answers a conversation. */
type Answer = (input: TextInput, options: GenerationOptions) => Generation

/** Version of the files of {@link TextSession.save}. */
const version = 1

/**
 * A conversation: it knows the messages so far, and the model finds the keys and values of what they have in common with the next
 * turn. Made by {@link TextModel.session}.
 * @example
 * const session = model.session({ messages: [{ role: 'system', content: 'Answer in one sentence.' }] })
 * for await (const piece of session.send('Why is the sky blue?')) console.log(piece)
 * for await (const piece of session.send('And at sunset?')) console.log(piece)
 */
export class TextSession {
  readonly #answer: Answer
  readonly #generation: GenerationOptions
  #messages: readonly ChatMessage[]
  #isAnswering = false

  /** @internal */
  constructor(answer: Answer, options: SessionOptions = {}) {
    expectKnownOptions('options', options, ['messages', 'generation'])
    const { messages = [], generation = {} } = options
    if (!Array.isArray(messages)) throw argumentError('options.messages', 'a list of messages', messages)
    expectObject('options.generation', 'an object of options', generation)
    this.#answer = answer
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
   * Writes the messages to a JSON file, which appears whole or not at all.
   * @throws SparkError ERR_IO
   */
  async save(file: string): Promise<void> {
    expectText('file', file)
    const text = JSON.stringify({ version, messages: this.#messages }, null, 2)
    await writeFileAtomic(file, [Buffer.from(`${text}\n`)])
  }

  /**
   * Replaces the messages by those of a file of {@link TextSession.save}.
   * @throws SparkError ERR_IO, ERR_FORMAT
   */
  async restore(file: string): Promise<void> {
    expectText('file', file)
    const content = (await readJson(file)) as { version?: unknown; messages?: unknown } | null
    const { messages } = content ?? {}
    const isList =
      Array.isArray(messages) &&
      messages.every(each => typeof each === 'object' && typeof each?.role === 'string')
    if (content?.version !== version || !isList)
      throw new SparkError('ERR_FORMAT', `${file} is no session that TextSession.save wrote`)
    this.#messages = messages
  }

  #respond(messages: readonly ChatMessage[], options: GenerationOptions): Generation {
    if (this.#isAnswering)
      throw new SparkError('ERR_BUSY', 'an answer is being generated: wait for it, or end it by its signal')
    const generation = this.#answer(messages, { ...this.#generation, ...options })
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
