// text-model.ts: a language model: loading, generating, embedding, measuring.
import { activationTypes } from '../core/activation-types.js'
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
  expectSignal,
  expectText,
} from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { Pacer } from '../core/paced.js'
import type { ModelBackendChoice, ModelStats } from '../model/engine.js'
import type { DecoderSizes } from './architectures/decoder.js'
import type { EncoderConfig } from './architectures/encoder-config.js'
import type { ChatMessage } from './chat-options.js'
import { ChatTemplate } from './chat-template.js'
import type { EmbeddingDefaults } from './embedding/embedding-defaults.js'
import type { EncoderEngine } from './embedding/encoder-engine.js'
import type { GenerationDefaults } from './files/generation-defaults.js'
import type { ModelFiles } from './files/model-files.js'
import type { DecoderEngine } from './generation/decoder-engine.js'
import { Generation } from './generation/generation.js'
import type { KeptCache } from './generation/kept-cache.js'
import { expectGenerationOptions, TextRequest } from './generation/text-request.js'
import type {
  EmbedInput,
  EmbedOptions,
  GenerationOptions,
  TextInput,
  TextModelOptions,
  TextProbabilities,
} from './text-options.js'
import { type SessionOptions, TextSession } from './text-session.js'
import type { TextTokenizer } from './text-tokenizer.js'

/** Names of the options of {@link TextModel.load}. */
const loadOptions: readonly string[] = [
  'backend',
  'device',
  'threads',
  'memory',
  'weightCache',
  'contextLength',
  'cacheTokens',
  'cacheType',
  'maxSequences',
  'batchTokens',
  'activations',
  'memoryLimit',
  'chatTemplate',
  'offline',
  'onProgress',
  'signal',
] satisfies readonly (keyof TextModelOptions)[]

/** What only this module can hand to the constructor. */
const internal: unique symbol = Symbol('internal')

/** What a model works with. */
interface Parts {
  readonly config: DecoderSizes | EncoderConfig
  readonly tokenizer: TextTokenizer
  readonly generation: GenerationDefaults
  readonly embedding: EmbeddingDefaults
  /** What runs it: one of the two. */
  readonly decoder?: DecoderEngine
  readonly encoder?: EncoderEngine
  readonly template?: ChatTemplate | undefined
}

/**
 * A language model. Several texts may be generated at once: they share each step of the model, and the tokens of one do not depend
 * on the others.
 * @example
 * const model = await TextModel.load('Qwen3-0.6B')
 * const question = [{ role: 'user', content: 'Why is the sky blue?' }]
 * for await (const piece of model.generate(question, { maxTokens: 200 })) console.log(piece)
 * model.dispose()
 */
export class TextModel implements Disposable {
  /** Turns text into the tokens of the model and back. */
  readonly tokenizer: TextTokenizer
  /** `model_type` of its architecture, such as `llama`. */
  readonly architecture: string
  /** Tokens of a sequence at most. */
  readonly contextLength: number
  readonly #parts: Parts

  private constructor(key: typeof internal, parts: Parts) {
    if (key !== internal)
      throw new SparkError('ERR_ARGUMENT', 'new TextModel(…) makes no model; call await TextModel.load(path)')
    this.#parts = parts
    this.tokenizer = parts.tokenizer
    this.architecture = parts.config.type
    this.contextLength = parts.encoder?.contextLength ?? parts.decoder!.limits.context
  }

  /**
   * Loads a language model.
   * @param source - a folder of Hugging Face (config.json, weights, tokenizer); one of ONNX, or the model in it; a GGUF file; or a
   * name that {@link pullModel} takes, such as `hf:owner/name`, `ollama:name` or an https: address
   * @throws SparkError ERR_IO; ERR_FORMAT naming what is broken; ERR_UNSUPPORTED for an architecture or format that is not known,
   * by its name; ERR_OUT_OF_MEMORY with numbers when weights and cache do not fit; ERR_ARGUMENT; the reason of the signal
   */
  static async load(source: string, options: TextModelOptions = {}): Promise<TextModel> {
    expectText('source', source)
    expectLoadOptions(options)
    const pacer = new Pacer(options.signal)
    const { readModelFiles } = await import('./files/model-files.js')
    const path = await pulledPath(source, options)
    const files = await readModelFiles(path, pacer)
    const { model, tokenizer, generation, embedding } = files
    if (model.kind === 'encoder') {
      const { EncoderEngine } = await import('./embedding/encoder-engine.js')
      const encoder = await EncoderEngine.open(model.config, model.weights, options)
      return new TextModel(internal, { config: model.config, tokenizer, generation, embedding, encoder })
    }
    const { DecoderEngine } = await import('./generation/decoder-engine.js')
    return TextModel.ofDecoder(files, options, () => DecoderEngine.open(model.decoder, options))
  }

  /**
   * A model whose decoder runs anywhere.
   * @internal
   * @throws SparkError as `ChatTemplate.parse`; what `open` throws
   */
  static async ofDecoder(
    { tokenizer, generation, embedding }: ModelFiles,
    { chatTemplate = tokenizer.chatTemplate }: Pick<TextModelOptions, 'chatTemplate'>,
    open: () => Promise<DecoderEngine>,
  ): Promise<TextModel> {
    const template = chatTemplate === undefined ? undefined : await ChatTemplate.parse(chatTemplate)
    const decoder = await open()
    const config = decoder.sizes
    return new TextModel(internal, { config, tokenizer, generation, embedding, decoder, template })
  }

  /** What it runs on, and why. */
  get backend(): ModelBackendChoice {
    return this.#engine.runner.backend
  }

  /** What was compiled so far. */
  get stats(): ModelStats {
    return this.#engine.runner.stats
  }

  /** Tokens whose keys and values are kept, of all sequences together; encoders keep none. */
  get cacheTokens(): number {
    const { decoder } = this.#parts
    return decoder ? decoder.limits.blocks * decoder.limits.blockSize : 0
  }

  /**
   * The tokens that {@link TextModel.generate} begins with: those of a text, or of a conversation behind the chat template with the
   * beginning of an answer. Control tokens in messages stay text.
   * @throws SparkError ERR_ARGUMENT where the model has no chat template, or it refuses the conversation
   */
  promptIds(input: TextInput, options: Pick<GenerationOptions, 'chat'> = {}): number[] {
    const { tokenizer } = this
    if (input instanceof Int32Array) return Array.from(input, id => this.#expectId(id))
    if (typeof input === 'string') return tokenizer.encode(input)
    if (!Array.isArray(input))
      throw argumentError('input', 'a text, a list of messages or an Int32Array', input)
    const prompt = this.#rendered(input, options.chat ?? {})
    return tokenizer.encode(prompt, { parseSpecial: true, addSpecialTokens: false })
  }

  /**
   * Generates a text. Equal seeds give equal texts, whatever else the model works on.
   * @param input - a text that goes on, messages of a conversation that is answered, or token ids
   * @returns the text while it is generated: iterate it, or await its `result()`
   * @throws SparkError ERR_ARGUMENT for options that are wrong. While it is iterated ERR_RANGE, with both numbers, when the prompt
   * does not fit into the context or the cache; ERR_NOT_FINITE when the model gives no numbers; ERR_DISPOSED; the reason of the signal
   */
  generate(input: TextInput, options: GenerationOptions = {}): Generation {
    expectGenerationOptions(options)
    const { scheduler } = this.#decoder
    const ids = this.promptIds(input, options)
    if (ids.length === 0) throw argumentError('input', 'of at least one token', input)
    const maxTokens = options.maxTokens ?? Math.max(1, this.#longestSequence - ids.length)
    return new Generation(async (push, abandoned) => {
      const text = new TextRequest(this.tokenizer, this.#parts.generation, ids, options, push)
      const signal = options.signal ? AbortSignal.any([options.signal, abandoned]) : abandoned
      return text.end(await scheduler.submit(text.request(ids, maxTokens, signal)))
    })
  }

  /** A conversation, which keeps its messages. */
  session(options: SessionOptions = {}): TextSession {
    return new TextSession(
      {
        generate: (input, generation) => this.generate(input, generation),
        keep: (messages, generation) => this.#keep(messages, generation),
        restore: async (cache, file) => {
          const { restoreCache } = await import('./generation/kept-cache.js')
          return restoreCache(this.#decoder, cache, file)
        },
      },
      options,
    )
  }

  /**
   * Vectors of texts, each [hidden size], from the states behind the last layer. The vector of a text does not depend on the others.
   * Texts that are too long lose their ends; see `maxLength`.
   * @throws SparkError ERR_ARGUMENT; ERR_RANGE for ids of more tokens than the context; ERR_UNSUPPORTED for a pooling that the model
   * cannot have; ERR_DISPOSED; the reason of the signal
   */
  async embed(
    texts: EmbedInput | readonly EmbedInput[],
    options: EmbedOptions = {},
  ): Promise<Float32Array[]> {
    const { config, embedding, encoder, decoder } = this.#parts
    const { embedRequest } = await import('./embedding/embed-request.js')
    const request = embedRequest(texts, options, {
      tokenizer: this.tokenizer,
      defaults: embedding,
      pooling: encoder ? 'mean' : 'last',
      contextLength: encoder ? this.contextLength : this.#longestSequence,
      hiddenSize: config.hiddenSize,
      vocabularySize: config.vocabularySize,
    })
    if (encoder) return encoder.embed(request)
    const { embedTexts } = await import('./generation/embed-texts.js')
    return embedTexts(decoder!.scheduler, request)
  }

  /**
   * Log probabilities of the tokens of a text, as the model continues what lies before each.
   * @throws SparkError as {@link TextModel.generate}; ERR_ARGUMENT for a text of less than two tokens
   */
  async logProbabilities(
    input: string | Int32Array,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<TextProbabilities> {
    expectKnownOptions('options', options, ['signal'])
    expectSignal('options.signal', options.signal)
    const ids = this.promptIds(input)
    if (ids.length < 2) throw argumentError('input', 'of at least two tokens', input)
    const { logProbabilities } = await import('./generation/log-probabilities.js')
    return { ids, logprobs: await logProbabilities(this.#decoder.scheduler, ids, options.signal) }
  }

  /**
   * Perplexity of a text: e to the mean of the negative log probabilities of its tokens but the first.
   * @throws SparkError as {@link TextModel.logProbabilities}
   */
  async perplexity(
    input: string | Int32Array,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<number> {
    const { logprobs } = await this.logProbabilities(input, options)
    return Math.exp(-logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length)
  }

  /**
   * Frees the memory that the model takes again when it needs it: plans with their arena, and keys and values of texts that have
   * ended, by which equal beginnings are found again. While no text is generated the whole cache of keys and values goes. Weights
   * stay, and texts are the same bit for bit.
   * @throws SparkError ERR_DISPOSED
   */
  async trim(): Promise<void> {
    await this.#engine.trim()
  }

  /** Frees weights and cache. Texts that are being generated end with ERR_DISPOSED; a second dispose is a no-op. */
  dispose(): void {
    void this.#engine.close()
  }

  /** As {@link TextModel.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  /** The keys and values of a conversation that was answered. */
  async #keep(
    messages: readonly ChatMessage[],
    { chat = {} }: GenerationOptions,
  ): Promise<KeptCache | undefined> {
    if (messages.every(({ role }) => role !== 'assistant')) return undefined
    const ids = this.promptIds(messages, { chat: { ...chat, addGenerationPrompt: false } })
    const { keepCache } = await import('./generation/kept-cache.js')
    return keepCache(this.#decoder, ids)
  }

  /** What continues texts. */
  get #decoder(): DecoderEngine {
    const { decoder, config } = this.#parts
    if (decoder) return decoder
    const message = `a model of type '${config.type}' makes vectors of texts, but does not continue them`
    throw new SparkError('ERR_UNSUPPORTED', `${message}: use embed`)
  }

  get #engine(): DecoderEngine | EncoderEngine {
    return this.#parts.encoder ?? this.#parts.decoder!
  }

  /** Tokens of a sequence that context and cache have room for. */
  get #longestSequence(): number {
    return Math.min(this.contextLength, this.cacheTokens)
  }

  #expectId(id: number): number {
    expectInteger('token id', id, 0, this.#parts.config.vocabularySize - 1)
    return id
  }

  /** A conversation behind the chat template. */
  #rendered(messages: readonly ChatMessage[], chat: NonNullable<GenerationOptions['chat']>): string {
    const { template, tokenizer } = this.#parts
    if (!template)
      throw new SparkError(
        'ERR_ARGUMENT',
        'the model has no chat template: give a text in place of messages, or load it with chatTemplate',
      )
    const plain = messages.map(message => withEscapedText(message, tokenizer))
    const specialTokens = Object.fromEntries(
      Object.entries(tokenizer.specialTokens).map(([name, { text }]) => [`${name}_token`, text]),
    )
    const addGenerationPrompt = chat.addGenerationPrompt ?? !chat.continueFinalMessage
    return template.render(plain, { ...chat, addGenerationPrompt, specialTokens })
  }
}

/** A message whose text cannot become control tokens. */
function withEscapedText(message: ChatMessage, tokenizer: TextTokenizer): ChatMessage {
  const { content } = message ?? {}
  const escaped = (text: unknown): unknown =>
    typeof text === 'string' ? tokenizer.escapeSpecialTokens(text) : text
  if (typeof content === 'string') return { ...message, content: tokenizer.escapeSpecialTokens(content) }
  if (!Array.isArray(content)) return message
  const parts = content.map(part => ({ ...part, text: escaped((part as { text?: unknown }).text) }))
  return { ...message, content: parts }
}

function expectLoadOptions(options: TextModelOptions): void {
  expectKnownOptions('options', options, loadOptions)
  expectDecoderOptions(options)
}

/** Checks options of a decoder, wherever it runs. @throws SparkError ERR_ARGUMENT */
export function expectDecoderOptions(options: TextModelOptions): void {
  const counts = ['contextLength', 'cacheTokens', 'maxSequences', 'batchTokens'] as const
  for (const name of counts)
    if (options[name] !== undefined) expectInteger(`options.${name}`, options[name], 1)
  if (options.memoryLimit !== undefined) expectNumber('options.memoryLimit', options.memoryLimit, 1)
  if (options.activations !== undefined)
    expectOneOf('options.activations', options.activations, activationTypes)
  if (options.chatTemplate !== undefined) expectText('options.chatTemplate', options.chatTemplate)
  expectSignal('options.signal', options.signal)
}

/** Where the files of a model are: those of a name are downloaded, unless they are on this disk. */
export async function pulledPath(
  source: string,
  options: Pick<TextModelOptions, 'offline' | 'onProgress' | 'signal'>,
): Promise<string> {
  const { isModelName } = await import('../hub/model-name.js')
  if (!isModelName(source)) return source
  const { pullModel } = await import('../hub/pull.js')
  const { offline, onProgress, signal } = options
  const given = { offline, onProgress, signal }
  const known = Object.entries(given).filter(([, value]) => value !== undefined)
  return (await pullModel(source, Object.fromEntries(known))).path
}
