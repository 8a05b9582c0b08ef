// text-tokenizer.ts: the public tokenizer. What it works with is loaded by the first one that is made.
import {
  argumentError,
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectObject,
  expectText,
} from '../core/checks.js'
import type { StreamDecoder } from './stream-decoder.js'
import type { TokenizerSource } from './tokenizer-json.js'
import type { DecodeOptions, EncodeOptions, SpecialTokens } from './tokenizer-options.js'
import type { TokenizerPipeline } from './tokenizer-pipeline.js'

const expectIds = (ids: unknown): void => {
  const isList = Array.isArray(ids) || (ArrayBuffer.isView(ids) && !(ids instanceof DataView))
  if (!isList) throw argumentError('ids', 'a list of token ids', ids)
}

const expectId = (id: unknown): void => {
  const isId = Number.isInteger(id) && (id as number) >= 0
  if (!isId) throw argumentError('token id', 'an integer >= 0', id)
}

/**
 * Turns text into the token ids of a language model and back: BPE, Unigram and WordPiece vocabularies of Hugging Face
 * folders, GGUF files and SentencePiece models. Gives the ids of the library tokenizers, or of llama.cpp for GGUF.
 * @example
 * const tokenizer = await TextTokenizer.load('Qwen3-0.6B')
 * const ids = tokenizer.encode('Hello, world!')
 * console.log(tokenizer.decode(ids))
 */
export class TextTokenizer {
  /** Control tokens by what they are for. */
  readonly specialTokens: SpecialTokens
  /** The chat template that came with the vocabulary; see {@link ChatTemplate}. */
  readonly chatTemplate: string | undefined
  readonly #pipeline: TokenizerPipeline

  /** @internal */
  constructor(pipeline: TokenizerPipeline, source: Omit<TokenizerSource, 'json'>) {
    this.#pipeline = pipeline
    this.chatTemplate = source.chatTemplate
    const entries = Object.entries(source.special).flatMap(([name, token]) => {
      const id = typeof token === 'number' ? token : pipeline.idOf(token)
      const text = id === undefined ? undefined : pipeline.tokenOf(id)
      return id === undefined || text === undefined ? [] : [[name, { id, text }] as const]
    })
    this.specialTokens = Object.fromEntries(entries)
  }

  /**
   * Reads the tokenizer of a model.
   * @param path - a folder with `tokenizer.json` (and `tokenizer_config.json`, `chat_template.jinja`) or with
   *   `tokenizer.model`, or one of these two files
   * @throws SparkError ERR_IO; ERR_FORMAT; ERR_UNSUPPORTED for a kind of tokenizer that is not known, by its name
   */
  static async load(path: string): Promise<TextTokenizer> {
    expectText('path', path)
    const { readTokenizer } = await import('./tokenizer-source.js')
    return TextTokenizer.#from(await readTokenizer(path))
  }

  /**
   * Makes a tokenizer of the parsed JSON of `tokenizer.json` and `tokenizer_config.json`.
   * @throws SparkError ERR_ARGUMENT, ERR_FORMAT, ERR_UNSUPPORTED
   */
  static async fromJson(tokenizer: object, config: object = {}): Promise<TextTokenizer> {
    expectObject('config', 'the object of a tokenizer_config.json', config)
    const { sourceOfJson } = await import('./tokenizer-source.js')
    return TextTokenizer.#from(sourceOfJson(tokenizer, config))
  }

  /**
   * Makes a tokenizer of the metadata of a GGUF file, its keys `tokenizer.ggml.*` and `tokenizer.chat_template`.
   * @throws SparkError ERR_ARGUMENT; ERR_FORMAT; ERR_UNSUPPORTED for a model or pre-tokenizer that is not known
   */
  static async fromGguf(metadata: ReadonlyMap<string, unknown>): Promise<TextTokenizer> {
    if (typeof metadata?.get !== 'function')
      throw argumentError('metadata', 'a map of the metadata of a GGUF file', metadata)
    const { sourceOfGguf } = await import('./gguf-vocabulary.js')
    return TextTokenizer.#from(sourceOfGguf(metadata))
  }

  static async #from({ json, ...rest }: TokenizerSource): Promise<TextTokenizer> {
    const { TokenizerPipeline } = await import('./tokenizer-pipeline.js')
    return new TextTokenizer(new TokenizerPipeline(json), rest)
  }

  /** One more than the largest id; the logits of a model may have more. */
  get vocabularySize(): number {
    return this.#pipeline.size
  }

  /** The id of a token as the vocabulary writes it, such as `Ġworld` or `</s>`; undefined for one that it does not have. */
  idOf(token: string): number | undefined {
    return this.#pipeline.idOf(token)
  }

  /** The token of an id as the vocabulary writes it; undefined for an id without one. */
  tokenOf(id: number): string | undefined {
    return this.#pipeline.tokenOf(id)
  }

  /** Whether an id is a control token. */
  isSpecial(id: number): boolean {
    return this.#pipeline.isSpecial(id)
  }

  /**
   * The ids of a text. Half a surrogate pair counts as U+FFFD; the noncharacter U+FDD0 is left out.
   * @throws SparkError ERR_ARGUMENT
   */
  encode(text: string, options: EncodeOptions = {}): number[] {
    if (typeof text !== 'string') throw argumentError('text', 'a string', text)
    expectKnownOptions('encode', options, ['addSpecialTokens', 'parseSpecial', 'maxLength'])
    const { maxLength, ...flags } = options
    for (const [name, value] of Object.entries(flags)) if (value !== undefined) expectBoolean(name, value)
    if (maxLength !== undefined) expectInteger('maxLength', maxLength, this.#pipeline.specialCount(options))
    return this.#pipeline.encode(text, options)
  }

  /**
   * Text of a user for a chat template: control tokens that it spells stay text when the rendered prompt is encoded with
   * `parseSpecial`. Each is parted by U+FDD0, which `encode` leaves out.
   * @throws SparkError ERR_ARGUMENT
   */
  escapeSpecialTokens(text: string): string {
    if (typeof text !== 'string') throw argumentError('text', 'a string', text)
    return this.#pipeline.escape(text)
  }

  /**
   * The text of ids. Bytes that are no UTF-8 become U+FFFD; an id without a token, as a model with padded logits may
   * give, has no text. Spaces are those that the tokens spell: `clean_up_tokenization_spaces` is not followed.
   * @throws SparkError ERR_ARGUMENT for anything but integers >= 0
   */
  decode(ids: readonly number[] | Int32Array | Uint32Array, options: DecodeOptions = {}): string {
    expectIds(ids)
    for (const id of ids) expectId(id)
    return this.#pipeline.decode(ids, skips(options))
  }

  /**
   * A decoder of ids that come one by one. Its pieces together are the text of {@link TextTokenizer.decode}, except
   * that bytes that are no UTF-8 may become another number of U+FFFD.
   * @throws SparkError ERR_ARGUMENT
   */
  streamDecoder(options: DecodeOptions = {}): StreamDecoder {
    return this.#pipeline.streamDecoder(skips(options), expectId)
  }
}

function skips(options: DecodeOptions): boolean {
  expectKnownOptions('decode', options, ['skipSpecialTokens'])
  const { skipSpecialTokens = true } = options
  expectBoolean('skipSpecialTokens', skipSpecialTokens)
  return skipSpecialTokens
}
