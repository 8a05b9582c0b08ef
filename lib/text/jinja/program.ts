// program.ts: a parsed template, and the variables and functions that transformers gives to chat templates.
import { parse, tokenize } from '@huggingface/jinja'
import { SparkError } from '../../core/errors.js'
import type { ChatMessage, ChatOptions } from '../chat-options.js'
import type { Node } from './ast.js'
import { countUnits, resetBudget, TemplateError } from './budget.js'
import { Interpreter, Scope } from './interpreter.js'
import { strftime } from './strftime.js'
import {
  type Callable,
  expectInt,
  expectItems,
  fromJavaScript,
  Namespace,
  textOf,
  type Value,
} from './values.js'

/** Characters of a template, and of white space in a row, on which the package's lexer is slow. */
const limits = { characters: 1_000_000, spaces: 500 }

/** Marks the end of the last message; the name is that of transformers. */
const endTag = 'CONTINUE_FINAL_MESSAGE_TAG '

const templateError = (code: 'ERR_ARGUMENT' | 'ERR_FORMAT' | 'ERR_RANGE', message: string): SparkError =>
  new SparkError(code, `chat template: ${message}`)

/** `{% raw %}` as an expression that is a text: the package does not know it. */
function withoutRaw(source: string): string {
  return source.replace(
    /\{%-?\s*raw\s*-?%\}\n?([\s\S]*?)\{%-?\s*endraw\s*-?%\}\n?/g,
    (_, text: string) => `{{ ${JSON.stringify(text)} }}`,
  )
}

function toSparkError(error: unknown): unknown {
  if (error instanceof RangeError) return templateError('ERR_RANGE', 'it is nested too deep')
  if (!(error instanceof TemplateError)) return error
  const codes = { raised: 'ERR_ARGUMENT', limit: 'ERR_RANGE', failed: 'ERR_FORMAT' } as const
  return templateError(codes[error.kind], error.message)
}

/** The numbers of Python's range. */
function range(args: readonly Value[]): Value[] {
  const [first = 0, second, step = 1] = args.map(arg => expectInt(arg, 'range'))
  const [start, stop] = second === undefined ? [0, first] : [first, second]
  if (step === 0) throw new TemplateError('the step of range must not be 0')
  const length = Math.max(0, Math.ceil((stop - start) / step))
  countUnits(length)
  return Array.from({ length }, (_, i) => start + i * step)
}

/** A dict of pairs and of named arguments. */
function dict([given]: readonly Value[], named: ReadonlyMap<string, Value>): Map<Value, Value> {
  const pairs = given instanceof Map ? [...given] : expectItems(given ?? []).map(pair => expectItems(pair))
  return new Map([...(pairs as [Value, Value][]), ...named])
}

function globals(now: Date): Record<string, Value> {
  const raise: Callable = ([message = '']) => {
    throw new TemplateError(textOf(message), 'raised')
  }
  return {
    ...{ true: true, false: false, none: null, True: true, False: false, None: null },
    range: args => range(args),
    dict,
    namespace: (args, named) => new Namespace(dict(args, named)),
    raise_exception: raise,
    strftime_now: ([format = '']) => strftime(now, textOf(format)),
  }
}

/** The messages with {@link endTag} behind the last text, and that text. */
function withEndTag(messages: readonly ChatMessage[]): { messages: readonly ChatMessage[]; text: string } {
  const last = messages.at(-1)
  const { content } = last ?? {}
  if (last && typeof content === 'string')
    return { messages: [...messages.slice(0, -1), { ...last, content: content + endTag }], text: content }
  const parts = Array.isArray(content) ? [...(content as { text?: unknown }[])] : []
  const index = parts.findLastIndex(part => typeof part.text === 'string')
  if (!last || index < 0) throw templateError('ERR_ARGUMENT', 'the final message has no text to continue')
  const text = parts[index]!.text as string
  parts[index] = { ...parts[index], text: text + endTag }
  return { messages: [...messages.slice(0, -1), { ...last, content: parts }], text }
}

/** A rendered text up to {@link endTag}. */
function upToEndTag(rendered: string, text: string): string {
  const end = rendered.lastIndexOf(endTag.trim())
  if (end < 0 || !rendered.includes(text.trim()))
    throw templateError(
      'ERR_ARGUMENT',
      'it does not show the final message, which therefore can not be continued',
    )
  const isSpacingKept = rendered.startsWith(endTag, end)
  return isSpacingKept ? rendered.slice(0, end) : rendered.slice(0, end).trimEnd()
}

/** A template that is parsed. */
export class TemplateProgram {
  readonly #body: readonly Node[]

  constructor(body: readonly Node[]) {
    this.#body = body
  }

  /** @throws SparkError ERR_FORMAT, ERR_RANGE */
  static parse(source: string): TemplateProgram {
    if (source.length > limits.characters)
      throw templateError('ERR_RANGE', `it has ${source.length} characters; at most ${limits.characters}`)
    const longest = (source.match(/\s+/g) ?? []).reduce((max, run) => Math.max(max, run.length), 0)
    if (longest > limits.spaces)
      throw templateError(
        'ERR_RANGE',
        `it has ${longest} characters of white space in a row; at most ${limits.spaces}`,
      )
    try {
      const tokens = tokenize(withoutRaw(source), { lstrip_blocks: true, trim_blocks: true })
      const { body } = parse(tokens) as unknown as { readonly body: readonly Node[] }
      return new TemplateProgram(body)
    } catch (error) {
      if (error instanceof RangeError) throw toSparkError(error)
      throw templateError('ERR_FORMAT', `it has a syntax error: ${(error as Error).message}`)
    }
  }

  /** @throws SparkError ERR_ARGUMENT, ERR_FORMAT, ERR_RANGE */
  renderChat(given: readonly ChatMessage[], options: ChatOptions): string {
    const { continueFinalMessage = false, now = new Date() } = options
    const { messages, text } = continueFinalMessage ? withEndTag(given) : { messages: given, text: '' }
    const variables = {
      messages,
      tools: options.tools ?? null,
      documents: options.documents ?? null,
      add_generation_prompt: options.addGenerationPrompt ?? false,
      ...options.specialTokens,
      ...options.variables,
    }
    const rendered = this.#render(variables, now)
    return continueFinalMessage ? upToEndTag(rendered, text) : rendered
  }

  #render(variables: Readonly<Record<string, unknown>>, now: Date): string {
    resetBudget()
    const scope = new Scope()
    try {
      for (const [name, value] of Object.entries(globals(now))) scope.set(name, value)
      for (const [name, value] of Object.entries(variables)) scope.set(name, fromJavaScript(value, name))
      return new Interpreter().render(this.#body, scope)
    } catch (error) {
      throw toSparkError(error)
    }
  }
}
