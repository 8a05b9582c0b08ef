// generation-defaults.ts: what the files of a model say about generating text with it.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { GgufFile } from '../../io/gguf/file.js'
import { isThere, readJson } from '../../io/read-file.js'
import { ConfigReader } from '../architectures/config-reader.js'
import type { SamplingOptions } from '../sampling-options.js'
import type { TextTokenizer } from '../text-tokenizer.js'

/** How a model wants to be used. */
export interface GenerationDefaults {
  /** Tokens that end a text or a turn. */
  readonly endIds: ReadonlySet<number>
  /** How tokens are chosen; empty where the files do not say. */
  readonly sampling: SamplingOptions
}

/** Options of sampling by the keys of generation_config.json and genai_config.json, and by those of GGUF behind `general.sampling.`. */
const samplingKeys = {
  temperature: ['temperature', 'temp'],
  topK: ['top_k', 'top_k'],
  topP: ['top_p', 'top_p'],
  minP: ['min_p', 'min_p'],
  typicalP: ['typical_p', 'typ_p'],
  repetitionPenalty: ['repetition_penalty', 'penalty_repeat'],
} as const satisfies Partial<Record<keyof SamplingOptions, readonly [string, string]>>

type SamplingKey = keyof typeof samplingKeys

/** Texts of tokens that end a turn in GGUF files, which name only one or two of them. */
const turnEnds = [
  '<|eot_id|>',
  '<|im_end|>',
  '<|end|>',
  '<end_of_turn>',
  '<turn|>',
  '<|endoftext|>',
  '<|eom_id|>',
  '<|return|>',
  '<|call|>',
]

/**
 * What generation_config.json and config.json of a folder say.
 * @throws SparkError ERR_FORMAT naming file and key
 */
export async function folderDefaults(
  folder: string,
  config: unknown,
  tokenizer: TextTokenizer,
): Promise<GenerationDefaults> {
  const file = path.join(folder, 'generation_config.json')
  const given = new ConfigReader((await isThere(file)) ? await readJson(file) : {}, file)
  const outer = new ConfigReader(config, 'config.json')
  const inner = outer.has('text_config') ? outer.object('text_config') : outer
  const ids = [given, outer, inner].map(values => endIdsOf(values)).find(list => list.length > 0) ?? []
  return { endIds: new Set([...ids, ...specialEnds(tokenizer)]), sampling: givenSampling(given) }
}

/**
 * What a genai_config.json says.
 * @param file - its name, for messages
 * @throws SparkError ERR_FORMAT naming file and key
 */
export function genaiDefaults(config: unknown, file: string, tokenizer: TextTokenizer): GenerationDefaults {
  const reader = new ConfigReader(config, file)
  const ids = endIdsOf(reader.object('model'))
  return {
    endIds: new Set([...ids, ...specialEnds(tokenizer)]),
    sampling: givenSampling(reader.object('search')),
  }
}

/** Options of sampling where a file wants it: without do_sample it means the most likely token. */
const givenSampling = (given: ConfigReader): SamplingOptions =>
  given.flag('do_sample', false)
    ? samplingOf((_, [key]) => (given.has(key) ? given.number(key) : undefined))
    : {}

function endIdsOf(values: ConfigReader): readonly number[] {
  const found = values.raw('eos_token_id')
  const list = found === undefined ? [] : Array.isArray(found) ? found : [found]
  if (list.every(id => Number.isSafeInteger(id) && id >= 0)) return list as number[]
  const message = `${values.nameOf('eos_token_id')} must be a token id or a list of them`
  throw new SparkError('ERR_FORMAT', message)
}

/** What the metadata of a GGUF file says. */
export function ggufDefaults(file: GgufFile, tokenizer: TextTokenizer): GenerationDefaults {
  const turns = turnEnds.map(text => tokenizer.idOf(text)).filter(id => id !== undefined)
  const special = turns.filter(id => tokenizer.isSpecial(id))
  const sampling = samplingOf((_, [, key]) => file.number(`general.sampling.${key}`))
  return { endIds: new Set([...special, ...specialEnds(tokenizer)]), sampling }
}

const specialEnds = ({ specialTokens: { eos, eot } }: TextTokenizer): number[] =>
  [eos, eot].flatMap(token => (token ? [token.id] : []))

/** The options that a file has values for. */
function samplingOf(
  find: (option: SamplingKey, keys: readonly [string, string]) => number | undefined,
): SamplingOptions {
  const entries = Object.entries(samplingKeys) as [SamplingKey, readonly [string, string]][]
  const values = entries.map(([option, keys]) => [option, find(option, keys)] as const)
  return Object.fromEntries(values.filter(([, value]) => value !== undefined))
}
