// sampling-options.ts: how a token is chosen from logits: options, their limits and defaults.
import { argumentError, expectInteger, expectKnownOptions, expectNumber } from '../core/checks.js'

/** How {@link Sampler} chooses. Names and meanings are those of vLLM and of the OpenAI API; defaults change nothing. */
export interface SamplingOptions {
  /** Divides the logits; 0 takes the most likely token. Default 1. */
  readonly temperature?: number
  /** Only this many of the most likely tokens, and those equal to the last of them; 0 for all. Default 0. */
  readonly topK?: number
  /** Only the most likely tokens that together have this probability (Holtzman et al. 2020). Default 1. */
  readonly topP?: number
  /** Only tokens at least this fraction as likely as the most likely one (Nguyen et al. 2024). Default 0. */
  readonly minP?: number
  /** Only the tokens of typical information that together have this probability (Meister et al. 2023). Default 1. */
  readonly typicalP?: number
  /** Divides positive logits, and multiplies negative ones, of tokens of the prompt and of the text so far. Default 1. */
  readonly repetitionPenalty?: number
  /** Subtracted once from the logit of a token that has been generated. Default 0. */
  readonly presencePenalty?: number
  /** Subtracted from the logit of a token each time that it has been generated. Default 0. */
  readonly frequencyPenalty?: number
  /** Added to logits, by token id; −Infinity excludes a token. */
  readonly logitBias?: ReadonlyMap<number, number> | Readonly<Record<number, number>>
  /** Seed of the random numbers, an integer in [0, 2^53). Default: another one for each sampler. */
  readonly seed?: number
  /** How many of the most likely tokens to report with their log probabilities; 0 for that of the chosen token only. */
  readonly logprobs?: number
  /** Tokens of the prompt, for `repetitionPenalty`. */
  readonly prompt?: readonly number[]
}

/** Options with all values. */
export interface SamplingSettings {
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  readonly minP: number
  readonly typicalP: number
  readonly repetitionPenalty: number
  readonly presencePenalty: number
  readonly frequencyPenalty: number
  readonly logitBias: ReadonlyMap<number, number>
  readonly seed: number
  readonly logprobs: number | undefined
  readonly prompt: readonly number[]
}

/** Names of the options that choose a token, without the prompt. */
export const samplingNames = [
  'temperature',
  'topK',
  'topP',
  'minP',
  'typicalP',
  'repetitionPenalty',
  'presencePenalty',
  'frequencyPenalty',
  'logitBias',
  'seed',
  'logprobs',
] as const satisfies readonly (keyof SamplingOptions)[]

/** The largest number above 0 that divides without an overflow of usual logits. */
const minTemperature = 1e-5
const maxId = 2 ** 31 - 1

function biases(given: NonNullable<SamplingOptions['logitBias']>): Map<number, number> {
  if (typeof given !== 'object' || given === null)
    throw argumentError('logitBias', 'a map or an object of numbers by token id', given)
  const entries = given instanceof Map ? [...given] : Object.entries(given)
  return new Map(
    entries.map(([key, bias]) => {
      const id = Number(key)
      expectInteger('token id of logitBias', id, 0, maxId)
      if (bias !== Number.NEGATIVE_INFINITY) expectNumber(`logitBias of ${id}`, bias)
      return [id, bias]
    }),
  )
}

const randomSeed = (): number => Math.floor(Math.random() * 2 ** 32)

/**
 * Checks options and adds what they do not say.
 * @throws SparkError ERR_ARGUMENT that names the option
 */
export function samplingSettings(options: SamplingOptions): SamplingSettings {
  expectKnownOptions('sampling', options, [...samplingNames, 'prompt'])
  const { temperature = 1, topK = 0, topP = 1, minP = 0, typicalP = 1, seed = randomSeed() } = options
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = {} } = options
  const { logprobs, prompt = [] } = options
  expectNumber('temperature', temperature, 0, 1e5)
  if (temperature > 0) expectNumber('temperature other than 0', temperature, minTemperature, 1e5)
  expectInteger('topK', topK, 0)
  expectNumber('topP', topP, 0, 1)
  expectNumber('minP', minP, 0, 1)
  expectNumber('typicalP', typicalP, 0, 1)
  expectNumber('repetitionPenalty', repetitionPenalty, 1e-3, 1e3)
  expectNumber('presencePenalty', presencePenalty, -1e3, 1e3)
  expectNumber('frequencyPenalty', frequencyPenalty, -1e3, 1e3)
  expectInteger('seed', seed, 0)
  if (logprobs !== undefined) expectInteger('logprobs', logprobs, 0, 1000)
  if (!Array.isArray(prompt)) throw argumentError('prompt', 'a list of token ids', prompt)
  for (const id of prompt) expectInteger('token id of prompt', id, 0, maxId)
  return {
    ...{ temperature, topK, topP, minP, typicalP, repetitionPenalty, presencePenalty, frequencyPenalty },
    ...{ logitBias: biases(logitBias), seed, logprobs, prompt },
  }
}
