// sampler.ts: chooses the next token from logits: the reference in f64 that faster samplers are measured against.
import { argumentError, expectInteger } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { philox } from '../core/philox.js'
import type { SamplerRow } from '../core/sampler-row.js'
import { TokenCounts } from './sampling-counts.js'
import {
  addBiases,
  draw,
  keepMinP,
  keepTopK,
  keepTopP,
  keepTypical,
  penalizeCounts,
  penalizeRepetition,
} from './sampling-filters.js'
import { type SamplingOptions, type SamplingSettings, samplingSettings } from './sampling-options.js'

/** A token with its natural log probability. */
export interface TokenLogprob {
  /** Index in the logits. */
  readonly id: number
  /** Natural log of the probability, at most 0. */
  readonly logprob: number
}

/** What {@link Sampler.sample} chose. */
export interface SampledToken {
  /** Index in the logits. */
  readonly id: number
  /** Natural log of the probability that the model gives the token, before penalties, temperature and filters; with `logprobs`. */
  readonly logprob?: number
  /** The most likely tokens, the likeliest first; with `logprobs`. */
  readonly top?: readonly TokenLogprob[]
}

/** Refuses logits that no token can be chosen from. −Infinity excludes a token and is none of them. */
function expectLogits(logits: Float32Array): void {
  if (!(logits instanceof Float32Array)) throw argumentError('logits', 'a Float32Array', logits)
  if (logits.length === 0) throw argumentError('logits', 'of at least one token', logits, 'ERR_SHAPE')
  const isWrong = (logit: number): boolean => Number.isNaN(logit) || logit === Number.POSITIVE_INFINITY
  const first = logits.findIndex(isWrong)
  if (first >= 0) {
    const count = logits.reduce((sum, logit) => sum + Number(isWrong(logit)), 0)
    const message = `logits: ${count} of ${logits.length} are NaN or Infinity, the first is ${logits[first]} of token ${first}`
    throw new SparkError('ERR_NOT_FINITE', `${message}; a model that overflows may need precision fp32`)
  }
}

const noToken = (what: string): SparkError =>
  new SparkError('ERR_NOT_FINITE', `logits: every token is excluded ${what}, all are -Infinity`)

/**
 * Chooses tokens for one sequence. The steps and their order are those of transformers: repetition penalty, presence and
 * frequency penalty, bias, temperature, topK, topP, minP, typicalP. The same seed gives the same tokens on every machine.
 * @example
 * const sampler = new Sampler({ temperature: 0.7, topP: 0.9, seed: 1 })
 * const { id } = sampler.sample(Float32Array.of(1, 2, 3))
 * sampler.accept(id)
 */
export class Sampler {
  readonly #settings: SamplingSettings
  /** How often each token was generated. */
  readonly #counts = new TokenCounts()
  /** Tokens of the prompt and of the text so far. */
  readonly #seen = new TokenCounts()
  #accepted = 0

  /** @throws SparkError ERR_ARGUMENT that names the option */
  constructor(options: SamplingOptions = {}) {
    this.#settings = samplingSettings(options)
    for (const id of this.#settings.prompt) this.#seen.add(id)
  }

  /** The seed, also where none was given. */
  get seed(): number {
    return this.#settings.seed
  }

  /**
   * Chooses a token; {@link Sampler.accept} adds it to the text. Chooses the same one until then.
   * @param logits - f32 by token id, not changed; −Infinity excludes a token
   * @throws SparkError ERR_ARGUMENT; ERR_SHAPE for none; ERR_NOT_FINITE for NaN or Infinity, with the token, and where
   *   every token is excluded
   */
  sample(logits: Float32Array): SampledToken {
    expectLogits(logits)
    const { temperature, logprobs } = this.#settings
    const processed = this.#penalized(logits)
    const id = temperature === 0 ? maxIndex(processed) : draw(this.#filtered(processed), this.#uniform())
    return logprobs === undefined ? { id } : { id, ...this.#logprobs(logits, id, logprobs) }
  }

  /**
   * The logits that a token is drawn from: after all steps, −Infinity where a token is excluded.
   * @throws SparkError as {@link Sampler.sample}
   */
  process(logits: Float32Array): Float64Array {
    expectLogits(logits)
    return this.#filtered(this.#penalized(logits))
  }

  /**
   * Adds a token to the text: penalties count it, and the next one is drawn with other random numbers.
   * @throws SparkError ERR_ARGUMENT
   */
  accept(id: number): void {
    expectInteger('id', id, 0, 2 ** 31 - 1)
    this.#counts.add(id)
    this.#seen.add(id)
    this.#accepted++
  }

  /**
   * What native code samples a row of logits with, and arrays for what it chooses.
   * @internal
   */
  row(): SamplerRow {
    const { logitBias, logprobs, prompt, seed, ...settings } = this.#settings
    const counts = settings.presencePenalty !== 0 || settings.frequencyPenalty !== 0
    return {
      ...settings,
      uniform: this.#uniform(),
      seen: this.#seen.ids,
      seenCount: settings.repetitionPenalty === 1 ? 0 : this.#seen.size,
      counted: this.#counts.ids,
      counts: this.#counts.counts,
      countedCount: counts ? this.#counts.size : 0,
      biased: Int32Array.from(logitBias.keys()),
      biases: Float64Array.from(logitBias.values()),
      biasedCount: logitBias.size,
      id: Int32Array.of(-1),
      logprob: logprobs === undefined ? undefined : new Float64Array(1),
      top: new Int32Array(logprobs ?? 0),
      topLogprobs: new Float64Array(logprobs ?? 0),
      topCount: logprobs ?? 0,
    }
  }

  #penalized(given: Float32Array): Float64Array {
    const { repetitionPenalty, presencePenalty, frequencyPenalty, logitBias } = this.#settings
    const logits = Float64Array.from(given)
    if (logits.every(logit => logit === Number.NEGATIVE_INFINITY)) throw noToken('by the model')
    if (repetitionPenalty !== 1) penalizeRepetition(logits, this.#seen.entries(), repetitionPenalty)
    penalizeCounts(logits, this.#counts.entries(), presencePenalty, frequencyPenalty)
    addBiases(logits, logitBias)
    if (logits.every(logit => logit === Number.NEGATIVE_INFINITY)) throw noToken('by logitBias')
    return logits
  }

  #filtered(logits: Float64Array): Float64Array {
    const { temperature, topK, topP, minP, typicalP } = this.#settings
    if (temperature !== 1 && temperature !== 0)
      for (let id = 0; id < logits.length; id++) logits[id]! /= temperature
    if (topK > 0) keepTopK(logits, topK)
    if (topP < 1) keepTopP(logits, topP)
    if (minP > 0) keepMinP(logits, minP)
    if (typicalP < 1) keepTypical(logits, typicalP)
    return logits
  }

  /** A number in [0, 1) of 53 random bits, by the seed and the number of tokens so far. */
  #uniform(): number {
    const { seed } = this.#settings
    const [high, low] = philox([this.#accepted, 0, 0, 0], [seed >>> 0, Math.floor(seed / 2 ** 32)])
    return ((high! >>> 5) * 2 ** 26 + (low! >>> 6)) / 2 ** 53
  }

  #logprobs(logits: Float32Array, id: number, count: number): Pick<SampledToken, 'logprob' | 'top'> {
    const values = Float64Array.from(logits)
    const max = values[maxIndex(values)]!
    const logSum = max + Math.log(values.reduce((sum, logit) => sum + Math.exp(logit - max), 0))
    const threshold = values.toSorted()[Math.max(0, values.length - count)]!
    const candidates = count === 0 ? [] : Array.from(values.keys()).filter(i => values[i]! >= threshold)
    candidates.sort((a, b) => values[b]! - values[a]! || a - b)
    const top = candidates.slice(0, count).map(i => ({ id: i, logprob: values[i]! - logSum }))
    return { logprob: values[id]! - logSum, top }
  }
}

/** Index of the largest value, the first of equal ones. */
function maxIndex(values: Float64Array): number {
  let best = 0
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i
  return best
}
