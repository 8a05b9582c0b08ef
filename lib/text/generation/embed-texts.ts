// embed-texts.ts: vectors of texts from the states of a decoder.
import {
  argumentError,
  expectBoolean,
  expectKnownOptions,
  expectOneOf,
  expectSignal,
} from '../../core/checks.js'
import type { EmbedOptions } from '../text-options.js'
import type { TextTokenizer } from '../text-tokenizer.js'
import type { Scheduler } from './scheduler.js'

/**
 * A vector for each text.
 * @throws SparkError ERR_ARGUMENT, and as `Scheduler.submit`
 */
export async function embedTexts(
  scheduler: Scheduler,
  tokenizer: TextTokenizer,
  texts: string | readonly string[],
  options: EmbedOptions,
): Promise<Float32Array[]> {
  expectKnownOptions('options', options, ['pooling', 'normalize', 'signal'])
  const { pooling = 'last', normalize = true, signal } = options
  expectOneOf('options.pooling', pooling, ['last', 'mean'])
  expectBoolean('options.normalize', normalize)
  expectSignal('options.signal', signal)
  const list = typeof texts === 'string' ? [texts] : texts
  if (!Array.isArray(list)) throw argumentError('texts', 'a text or a list of texts', texts)
  const ids = list.map((text, i) => {
    const tokens = tokenizer.encode(text)
    if (tokens.length === 0) throw argumentError(`texts[${i}]`, 'a text of at least one token', text)
    return tokens
  })
  const one = async (tokens: readonly number[]): Promise<Float32Array> => {
    const pooled = await pooledStates(scheduler, tokens, pooling, signal)
    return normalize ? normalized(pooled) : Float32Array.from(pooled)
  }
  return Promise.all(ids.map(one))
}

async function pooledStates(
  scheduler: Scheduler,
  ids: readonly number[],
  pooling: 'last' | 'mean',
  signal: AbortSignal | undefined,
): Promise<Float64Array> {
  let sum = new Float64Array(0)
  await scheduler.submit({
    ids,
    maxTokens: 0,
    output: 'hidden',
    rows: pooling === 'mean' ? 'all' : 'last',
    signal,
    next(rows, width) {
      if (sum.length === 0) sum = new Float64Array(width)
      for (let i = 0; i < rows.length; i++) sum[i % width]! += rows[i]!
      return undefined
    },
  })
  const count = pooling === 'mean' ? ids.length : 1
  return sum.map(value => value / count)
}

/** A vector of length 1; of zeros where it has none. */
function normalized(vector: Float64Array): Float32Array {
  const length = Math.hypot(...vector)
  return Float32Array.from(vector, value => (length > 0 ? value / length : 0))
}
