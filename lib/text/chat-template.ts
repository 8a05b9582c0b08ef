// chat-template.ts: renders the chat template of a model, as transformers' apply_chat_template does.
import { argumentError, expectBoolean, expectKnownOptions, expectObject, expectText } from '../core/checks.js'
import type { ChatMessage, ChatOptions } from './chat-options.js'
import type { TemplateProgram } from './jinja/program.js'

const optionNames = [
  'addGenerationPrompt',
  'continueFinalMessage',
  'tools',
  'documents',
  'specialTokens',
  'variables',
  'now',
]

function expectList(name: string, value: unknown): void {
  if (value === undefined) return
  if (!Array.isArray(value)) throw argumentError(name, 'a list of objects', value)
  for (const [i, item] of value.entries()) expectObject(`${name}[${i}]`, 'an object', item)
}

function expectOptions(messages: unknown, options: ChatOptions): void {
  if (!Array.isArray(messages)) throw argumentError('messages', 'a list of messages', messages)
  for (const [i, message] of messages.entries()) {
    expectObject(`messages[${i}]`, 'a message', message)
    expectText(`messages[${i}].role`, (message as { role?: unknown }).role)
  }
  expectKnownOptions('chat template', options, optionNames)
  const { addGenerationPrompt = false, continueFinalMessage = false, now = new Date() } = options
  expectBoolean('addGenerationPrompt', addGenerationPrompt)
  expectBoolean('continueFinalMessage', continueFinalMessage)
  if (addGenerationPrompt && continueFinalMessage)
    throw argumentError('continueFinalMessage', 'false where addGenerationPrompt is true', true)
  expectList('tools', options.tools)
  expectList('documents', options.documents)
  expectObject('specialTokens', 'an object of texts by name', options.specialTokens ?? {})
  expectObject('variables', 'an object of values by name', options.variables ?? {})
  if (!(now instanceof Date) || Number.isNaN(now.getTime())) throw argumentError('now', 'a valid Date', now)
}

/**
 * A chat template, in the language Jinja, ready to render. What a template may do is bounded: its size, steps and the
 * text that it makes; it sees nothing but what it is given.
 * @example
 * const template = await ChatTemplate.parse("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
 * const prompt = template.render([{ role: 'user', content: 'Hi' }])
 */
export class ChatTemplate {
  readonly #program: TemplateProgram

  /** @internal */
  constructor(program: TemplateProgram) {
    this.#program = program
  }

  /**
   * Parses a template.
   * @throws SparkError ERR_ARGUMENT; ERR_FORMAT for a syntax error; ERR_RANGE for more than a million characters
   */
  static async parse(source: string): Promise<ChatTemplate> {
    expectText('template', source)
    const { TemplateProgram } = await import('./jinja/program.js')
    return new ChatTemplate(TemplateProgram.parse(source))
  }

  /**
   * The text of a conversation, to be encoded with `parseSpecial`. Text of users that spells control tokens is not
   * changed: give it through {@link TextTokenizer.escapeSpecialTokens}.
   * @throws SparkError ERR_ARGUMENT for bad arguments, and with the message of a template that refuses the conversation;
   *   ERR_FORMAT for a template that fails, with the expression that did; ERR_RANGE for one that reaches a limit
   */
  render(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
    expectOptions(messages, options)
    return this.#program.renderChat(messages, options)
  }
}
