// tokenizer-pipeline.ts: the steps from text to ids, and the tables of a vocabulary.
import { AddedTokenSplitter, type Section } from './added-tokens.js'
import { Bpe } from './bpe.js'
import { type SpecialTemplate, specialTemplate } from './special-template.js'
import { StreamDecoder } from './stream-decoder.js'
import { normalizerOf, preTokenizerOf } from './text-components.js'
import { TokenDecoder } from './token-decoder.js'
import { type AddedToken, type TokenizerJson, tokenizerError } from './tokenizer-json.js'
import type { EncodeOptions } from './tokenizer-options.js'
import { Unigram } from './unigram.js'
import { WordPiece } from './word-piece.js'

/** Half of a character, which UTF-8 can not write. */
const loneSurrogate = /[\ud800-\udfff]/gu

/** A code point that Unicode keeps for uses like this one: it parts the text of a control token. */
const mark = '\ufdd0'

/** Ids of a piece of text. */
interface PieceEncoder {
  encode(piece: string): readonly number[]
}

/** Ids by token of a model without its added tokens. */
function vocabularyOf({ model }: TokenizerJson): Map<string, number> {
  const { vocab } = model
  return Array.isArray(vocab)
    ? new Map(vocab.map(([token], id) => [token, id]))
    : new Map(Object.entries(vocab as Record<string, number>))
}

function encoderOf(json: TokenizerJson, ids: Map<string, number>, special: Set<number>): PieceEncoder {
  switch (json.model.type) {
    case 'Unigram':
      return new Unigram(json.model, special)
    case 'WordPiece':
      return new WordPiece(json.model, ids)
    default:
      return new Bpe(json.model, ids)
  }
}

/** Splitters of raw and of normalized text, with or without control tokens. */
function splittersOf(
  tokens: readonly AddedToken[],
  normalize: (text: string) => string,
): { raw: AddedTokenSplitter; normalized: AddedTokenSplitter } {
  const isNormalized = (token: AddedToken): boolean => token.normalized ?? !token.special
  const raw = tokens.filter(token => !isNormalized(token)).map(token => [token.content, token] as const)
  const normalized = tokens.filter(isNormalized).map(token => [normalize(token.content), token] as const)
  return { raw: new AddedTokenSplitter(raw), normalized: new AddedTokenSplitter(normalized) }
}

/** All that a tokenizer.json describes, ready to use. */
export class TokenizerPipeline {
  readonly #normalize: (text: string) => string
  readonly #preTokenize: (text: string, section: number) => readonly string[]
  readonly #encoder: PieceEncoder
  readonly #decoder: TokenDecoder
  readonly #template: SpecialTemplate
  /** With all added tokens, and without the control tokens among them. */
  readonly #splitters: Record<'all' | 'ordinary', ReturnType<typeof splittersOf>>
  readonly #ids: Map<string, number>
  readonly #tokens: string[] = []
  readonly #special: ReadonlySet<number>

  /** @throws SparkError ERR_FORMAT, ERR_UNSUPPORTED */
  constructor(json: TokenizerJson) {
    const added = json.added_tokens
    const special = new Set(added.filter(token => token.special).map(token => token.id))
    const ids = vocabularyOf(json)
    this.#special = special
    this.#normalize = normalizerOf(json.normalizer)
    this.#preTokenize = preTokenizerOf(json.pre_tokenizer, this.#normalize)
    this.#encoder = encoderOf(json, ids, special)
    this.#decoder = new TokenDecoder(json.decoder)
    this.#template = specialTemplate(json.post_processor)
    this.#splitters = {
      all: splittersOf(added, this.#normalize),
      ordinary: splittersOf(
        added.filter(token => !token.special),
        this.#normalize,
      ),
    }
    this.#ids = new Map([...ids, ...added.map(token => [token.content, token.id] as const)])
    for (const [token, id] of ids) this.#tokens[id] = token
    for (const { content, id } of added) this.#tokens[id] = content
    if (this.#tokens.length === 0) throw tokenizerError('ERR_FORMAT', 'the vocabulary is empty')
  }

  /** One more than the largest id. */
  get size(): number {
    return this.#tokens.length
  }

  idOf(token: string): number | undefined {
    return this.#ids.get(token)
  }

  tokenOf(id: number): string | undefined {
    return this.#tokens[id]
  }

  isSpecial(id: number): boolean {
    return this.#special.has(id)
  }

  /** Tokens that are added around a text. */
  specialCount({ addSpecialTokens = true }: EncodeOptions): number {
    const { before, behind } = this.#template
    return addSpecialTokens ? before.length + behind.length : 0
  }

  encode(text: string, options: EncodeOptions): number[] {
    const { addSpecialTokens = true, parseSpecial = false, maxLength } = options
    const { raw, normalized } = this.#splitters[parseSpecial ? 'all' : 'ordinary']
    const ids: number[] = addSpecialTokens ? [...this.#template.before] : []
    raw.split(text.replace(loneSurrogate, '\ufffd')).forEach((section, i) => {
      if (typeof section !== 'string') ids.push(section.id)
      else for (const part of normalized.split(this.#normalize(section))) this.#encodeSection(part, i, ids)
    })
    const { behind } = this.#template
    if (maxLength !== undefined) ids.splice(maxLength - (addSpecialTokens ? behind.length : 0))
    if (addSpecialTokens) ids.push(...behind)
    return ids
  }

  escape(text: string): string {
    return this.#splitters.all.raw.marked(text.replaceAll(mark, ''), mark)
  }

  #encodeSection(section: Section, index: number, ids: number[]): void {
    if (typeof section !== 'string') {
      ids.push(section.id)
      return
    }
    const text = section.includes(mark) ? section.replaceAll(mark, '') : section
    for (const piece of this.#preTokenize(text, index))
      for (const id of this.#encoder.encode(piece)) ids.push(id)
  }

  decode(ids: Iterable<number>, skipSpecialTokens: boolean): string {
    const tokens: string[] = []
    for (const id of ids) {
      const token = skipSpecialTokens && this.#special.has(id) ? undefined : this.#tokens[id]
      if (token !== undefined) tokens.push(token)
    }
    return this.#decoder.decode(tokens)
  }

  streamDecoder(skipSpecialTokens: boolean, check: (id: number) => void): StreamDecoder {
    return new StreamDecoder(this.#decoder, id => {
      check(id)
      return skipSpecialTokens && this.#special.has(id) ? undefined : this.#tokens[id]
    })
  }
}
