// generation-flags.ts: options of commands that generate text.
import { type Command, InvalidArgumentError } from 'commander'
import { type ActivationType, activationTypes } from '../../core/activation-types.js'
import { type BackendName, backendNames } from '../../core/config.js'
import { type CacheType, cacheTypes } from '../../text/architectures/cache-types.js'
import type { GenerationOptions, TextModelOptions } from '../../text/text-options.js'
import { choice } from '../command.js'
import { integerFrom, numberFrom } from '../numbers.js'

/** Options of {@link addModelFlags}. */
export interface ModelFlags {
  backend?: BackendName
  threads?: number
  context?: number
  cacheTokens?: number
  cacheType?: CacheType
  activations?: ActivationType
}

/** Options of {@link addGenerationFlags}. */
export interface GenerationFlags {
  maxTokens?: number
  temperature?: number
  topK?: number
  topP?: number
  minP?: number
  typicalP?: number
  repetitionPenalty?: number
  presencePenalty?: number
  frequencyPenalty?: number
  seed?: number
  stop?: string[]
  logitBias?: Record<number, number>
}

/** Lets a command say how a language model is loaded. */
export function addModelFlags(command: Command): Command {
  return command
    .addOption(choice('--backend <name>', 'where it is computed (default: the best)', backendNames))
    .option('--threads <count>', 'threads of the CPU (default: one per core)', integerFrom(0))
    .option(
      '--context <tokens>',
      'tokens of a sequence at most (default: those of the model)',
      integerFrom(1),
    )
    .option('--cache-tokens <count>', 'tokens whose keys and values are kept', integerFrom(1))
    .addOption(
      choice('--cache-type <type>', 'what keys and values are rounded to (default: f32)', cacheTypes),
    )
    .addOption(
      choice(
        '--activations <type>',
        'what rows are rounded to: int8 for blocks, bf16 for bf16, nvfp4 for NVFP4 (default: f32)',
        activationTypes,
      ),
    )
}

/** Lets a command say how tokens are chosen. */
export function addGenerationFlags(command: Command): Command {
  return command
    .option(
      '--max-tokens <count>',
      'tokens of the text at most (default: to the end of the context)',
      integerFrom(1),
    )
    .option(
      '--temperature <number>',
      '0 takes the most likely token (default: as the model says, or 0)',
      numberFrom(0),
    )
    .option('--top-k <count>', 'only so many of the most likely tokens', integerFrom(0))
    .option(
      '--top-p <number>',
      'only the most likely tokens of this probability together',
      numberFrom(0, 1.000001),
    )
    .option(
      '--min-p <number>',
      'only tokens at least this fraction as likely as the first',
      numberFrom(0, 1.000001),
    )
    .option('--typical-p <number>', 'only tokens of typical information', numberFrom(0, 1.000001))
    .option(
      '--repetition-penalty <number>',
      'divides logits of tokens that are there already',
      numberFrom(0.001),
    )
    .option('--presence-penalty <number>', 'subtracted from logits of tokens of the text', numberFrom(-1000))
    .option('--frequency-penalty <number>', 'the same, each time that they occur', numberFrom(-1000))
    .option('--logit-bias <id=number>', 'added to the logit of a token; may be repeated', biases)
    .option('--seed <n>', 'seed of random numbers (default: another one each time)', integerFrom(0))
    .option(
      '--stop <text>',
      'text that ends the text; may be repeated',
      (text: string, list: string[] = []) => [...list, text],
    )
}

function biases(text: string, known: Record<number, number> = {}): Record<number, number> {
  const [, id, bias] = /^(\d{1,9})=(-?(?:\d+(?:\.\d+)?|Infinity))$/.exec(text) ?? []
  if (id === undefined) throw new InvalidArgumentError('expected a token id and a number, such as 13=-100')
  return { ...known, [Number(id)]: Number(bias) }
}

/** Values that somebody gave. */
const given = <T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never

/** How the model is loaded. */
export const modelOptions = (flags: ModelFlags): TextModelOptions =>
  given({
    backend: flags.backend,
    threads: flags.threads,
    contextLength: flags.context,
    cacheTokens: flags.cacheTokens,
    cacheType: flags.cacheType,
    activations: flags.activations,
  })

/** How tokens are chosen. */
export const generationOptions = (flags: GenerationFlags): GenerationOptions =>
  given({
    maxTokens: flags.maxTokens,
    temperature: flags.temperature,
    topK: flags.topK,
    topP: flags.topP,
    minP: flags.minP,
    typicalP: flags.typicalP,
    repetitionPenalty: flags.repetitionPenalty,
    presencePenalty: flags.presencePenalty,
    frequencyPenalty: flags.frequencyPenalty,
    logitBias: flags.logitBias,
    seed: flags.seed,
    stop: flags.stop,
  })
