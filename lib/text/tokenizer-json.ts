// tokenizer-json.ts: the parts of a tokenizer.json that are read here, and checks of what it must have.
import { expectObject } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import type { SpecialTokens } from './tokenizer-options.js'

/** A token that is found in text before the model splits it. */
export interface AddedToken {
  readonly id: number
  readonly content: string
  /** A control token: text that spells it is no token unless asked for. */
  readonly special?: boolean
  /** Looked for in normalized text. */
  readonly normalized?: boolean
  /** Takes the white space before it along. */
  readonly lstrip?: boolean
  /** Takes the white space behind it along. */
  readonly rstrip?: boolean
  /** Only where no word character is next to it. */
  readonly single_word?: boolean
}

/** A normalizer, pre-tokenizer, post-processor or decoder: its type and what the type asks for. */
export interface Component {
  readonly type: string
  readonly [key: string]: unknown
}

/** The model of a tokenizer: how a piece of text becomes ids. */
export interface TokenizerModel extends Component {
  /** Ids by token; of Unigram [token, score] by id. */
  readonly vocab: Readonly<Record<string, number>> | readonly (readonly [string, number])[]
  /** Of BPE: pairs as [left, right] or `left right`, the first is merged first. */
  readonly merges?: readonly (string | readonly [string, string])[]
  /** Of BPE: the rank of each merge where several share one; else their order. No part of the file format. */
  readonly ranks?: readonly number[]
}

/** A tokenizer.json. */
export interface TokenizerJson {
  readonly model: TokenizerModel
  readonly added_tokens: readonly AddedToken[]
  readonly normalizer: Component | null
  readonly pre_tokenizer: Component | null
  readonly post_processor: Component | null
  readonly decoder: Component | null
}

/** Everything that a tokenizer needs to know. */
export interface TokenizerSource {
  readonly json: TokenizerJson
  /** Control tokens by name: a text, or an id. */
  readonly special: Readonly<Partial<Record<keyof SpecialTokens, string | number>>>
  readonly chatTemplate: string | undefined
}

/** An error about a tokenizer file. */
export const tokenizerError = (code: 'ERR_FORMAT' | 'ERR_UNSUPPORTED', message: string): SparkError =>
  new SparkError(code, `tokenizer: ${message}`)

const components = ['normalizer', 'pre_tokenizer', 'post_processor', 'decoder'] as const

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isComponent = (value: unknown): value is Component => isRecord(value) && typeof value.type === 'string'

/**
 * The parts of a component, which has them as `name`.
 * @throws SparkError ERR_FORMAT
 */
export function partsOf(component: Component, name: string): readonly Component[] {
  const parts = component[name] ?? []
  if (Array.isArray(parts) && parts.every(isComponent)) return parts
  throw tokenizerError('ERR_FORMAT', `${name} must be a list whose parts have a type`)
}

function checkVocabulary({ type, vocab, merges }: Record<string, unknown>): void {
  const wanted = type === 'Unigram' ? Array.isArray(vocab) : isRecord(vocab)
  if (!wanted) throw tokenizerError('ERR_FORMAT', `model.vocab of ${String(type)} has the wrong form`)
  const ids = type === 'Unigram' ? [] : Object.values(vocab as object)
  const wrong = ids.find(id => !Number.isInteger(id) || (id as number) < 0 || (id as number) > 2 ** 31 - 1)
  if (wrong !== undefined) throw tokenizerError('ERR_FORMAT', `model.vocab has the id ${String(wrong)}`)
  const isPair = ([token, score]: unknown[]) => typeof token === 'string' && typeof score === 'number'
  if (type === 'Unigram' && !(vocab as unknown[]).every(row => Array.isArray(row) && isPair(row)))
    throw tokenizerError('ERR_FORMAT', 'model.vocab of Unigram must hold pairs of token and score')
  if (type === 'BPE' && !Array.isArray(merges)) throw tokenizerError('ERR_FORMAT', 'model.merges is missing')
}

/**
 * A value as a tokenizer.json.
 * @throws SparkError ERR_FORMAT that names what is missing; ERR_UNSUPPORTED for a model that is not known
 */
export function asTokenizerJson(value: unknown): TokenizerJson {
  expectObject('tokenizer', 'the object of a tokenizer.json', value)
  const { model, added_tokens: added = [], ...rest } = value as Record<string, unknown>
  if (!isRecord(model)) throw tokenizerError('ERR_FORMAT', 'model is missing; is this a tokenizer.json?')
  // Files of before 2021 do not name the type of their model.
  const type = model.type ?? (Array.isArray(model.vocab) ? 'Unigram' : model.merges ? 'BPE' : 'WordPiece')
  if (!['BPE', 'Unigram', 'WordPiece'].includes(type as string))
    throw tokenizerError('ERR_UNSUPPORTED', `model ${String(type)}; known: BPE, Unigram, WordPiece`)
  checkVocabulary({ ...model, type })
  if (!Array.isArray(added)) throw tokenizerError('ERR_FORMAT', 'added_tokens must be a list')
  for (const token of added) {
    if (!isRecord(token) || typeof token.content !== 'string' || !Number.isInteger(token.id))
      throw tokenizerError('ERR_FORMAT', 'added_tokens must have an id and a content each')
  }
  const parts = components.map(name => {
    const part = rest[name] ?? null
    if (part !== null && !isComponent(part))
      throw tokenizerError('ERR_FORMAT', `${name} must be null or have a type`)
    return [name, part]
  })
  return { model: { ...model, type }, added_tokens: added, ...Object.fromEntries(parts) } as TokenizerJson
}
