// embed-request.ts: texts that vectors are wanted of, as tokens.
import {
  argumentError,
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectOneOf,
  expectSignal,
} from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { type Pooling, poolings } from '../architectures/encoder.js'
import type { EmbedInput, EmbedOptions } from '../text-options.js'
import type { TextTokenizer } from '../text-tokenizer.js'
import type { EmbeddingDefaults } from './embedding-defaults.js'

/** Names of the options of `TextModel.embed`. */
const optionNames: readonly string[] = [
  'pooling',
  'normalize',
  'prompt',
  'promptName',
  'maxLength',
  'dimensions',
  'signal',
] satisfies readonly (keyof EmbedOptions)[]

/** What is known of the model. */
export interface EmbeddingSource {
  readonly tokenizer: TextTokenizer
  readonly defaults: EmbeddingDefaults
  /** Pooling where neither files nor options say another one. */
  readonly pooling: Pooling
  /** Tokens of the longest text. */
  readonly contextLength: number
  /** Elements of a vector. */
  readonly hiddenSize: number
  /** Tokens of the vocabulary. */
  readonly vocabularySize: number
}

/** Tokens of texts, and what becomes of their states. */
export interface EmbedRequest {
  readonly ids: readonly (readonly number[])[]
  readonly pooling: Pooling
  readonly signal: AbortSignal | undefined
  /** The vector of a pooled state: its first elements where fewer are wanted, normalized if that is wanted. */
  finish(pooled: ArrayLike<number>): Float32Array
}

/**
 * Checks texts and options, and makes tokens of the texts.
 * @throws SparkError ERR_ARGUMENT; ERR_RANGE for ids of more tokens than the context; ERR_UNSUPPORTED for a mean without its prompt
 */
export function embedRequest(
  texts: EmbedInput | readonly EmbedInput[],
  options: EmbedOptions,
  source: EmbeddingSource,
): EmbedRequest {
  expectKnownOptions('options', options, optionNames)
  const { defaults } = source
  const { pooling = defaults.pooling ?? source.pooling, normalize = defaults.normalize, signal } = options
  expectOneOf('options.pooling', pooling, poolings)
  expectBoolean('options.normalize', normalize)
  expectSignal('options.signal', signal)
  const { dimensions = source.hiddenSize, maxLength = Math.min(defaults.maxLength, source.contextLength) } =
    options
  expectInteger('options.dimensions', dimensions, 1, source.hiddenSize)
  expectInteger('options.maxLength', maxLength, 1, source.contextLength)
  const prompt = promptOf(options, defaults)
  if (prompt !== '' && pooling === 'mean' && !defaults.includePrompt) {
    const message = 'the model leaves its prompt out of the mean, which is not supported'
    throw new SparkError('ERR_UNSUPPORTED', `${message}: give prompt ''`)
  }
  const list = typeof texts === 'string' || texts instanceof Int32Array ? [texts] : texts
  if (!Array.isArray(list)) throw argumentError('texts', 'a text or a list of texts', texts)
  const ids = list.map((text: EmbedInput, i) => {
    const tokens = idsOf(text, `texts[${i}]`, prompt, maxLength, source)
    if (tokens.length === 0) throw argumentError(`texts[${i}]`, 'of at least one token', text)
    return tokens
  })
  const finish = (pooled: ArrayLike<number>): Float32Array => {
    const kept = Array.from({ length: dimensions }, (_, i) => pooled[i]!)
    return normalize ? normalized(kept) : Float32Array.from(kept)
  }
  return { ids, pooling, signal, finish }
}

function promptOf(
  { prompt, promptName }: EmbedOptions,
  { prompts, promptName: usual }: EmbeddingDefaults,
): string {
  if (prompt !== undefined && promptName !== undefined)
    throw argumentError('options.prompt', 'left out where options.promptName is given', prompt)
  if (prompt !== undefined && typeof prompt !== 'string')
    throw argumentError('options.prompt', 'a text', prompt)
  if (promptName !== undefined) expectOneOf('options.promptName', promptName, [...prompts.keys()])
  const name = promptName ?? usual
  return prompt ?? (name === undefined ? '' : (prompts.get(name) ?? ''))
}

function idsOf(
  text: EmbedInput,
  name: string,
  prompt: string,
  maxLength: number,
  { tokenizer, vocabularySize, contextLength }: EmbeddingSource,
): readonly number[] {
  if (typeof text === 'string') return tokenizer.encode(prompt + text, { maxLength })
  if (!(text instanceof Int32Array)) throw argumentError(name, 'a text or an Int32Array of token ids', text)
  for (const id of text) expectInteger(`token id of ${name}`, id, 0, vocabularySize - 1)
  if (text.length <= contextLength) return Array.from(text)
  const message = `${name} has ${text.length} tokens, but the model takes ${contextLength} at most`
  throw new SparkError('ERR_RANGE', message)
}

/** A vector of length 1; of zeros where it has none. */
function normalized(vector: readonly number[]): Float32Array {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0))
  return Float32Array.from(vector, value => (length > 0 ? value / length : 0))
}
