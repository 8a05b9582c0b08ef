// embedding-defaults.ts: what the files of a model say about vectors of texts, as sentence-transformers writes it.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { GgufFile } from '../../io/gguf/file.js'
import { isThere, readJson } from '../../io/read-file.js'
import { ConfigReader } from '../architectures/config-reader.js'
import type { Pooling } from '../architectures/encoder.js'

/** How a model wants to be used for vectors of texts. */
export interface EmbeddingDefaults {
  /** What stands for a text; undefined where the files do not say. */
  readonly pooling: Pooling | undefined
  /** Whether vectors are divided by their Euclidean norms. */
  readonly normalize: boolean
  /** Tokens that a text is cut to; Infinity where the files do not say. */
  readonly maxLength: number
  /** Texts that are put in front of a text, by what it is for. */
  readonly prompts: ReadonlyMap<string, string>
  /** Name of the prompt that is used unless another one is asked for. */
  readonly promptName: string | undefined
  /** Whether the tokens of a prompt count in a mean. */
  readonly includePrompt: boolean
}

/** Of files that say nothing. */
const plain: EmbeddingDefaults = {
  pooling: undefined,
  normalize: true,
  maxLength: Number.POSITIVE_INFINITY,
  prompts: new Map(),
  promptName: undefined,
  includePrompt: true,
}

/** Modes of `1_Pooling/config.json` that are supported. */
const modes: Readonly<Record<string, Pooling>> = {
  pooling_mode_mean_tokens: 'mean',
  pooling_mode_cls_token: 'cls',
  pooling_mode_lasttoken: 'last',
}

/** What the folder of a model says. Values that it lacks are those of {@link plain}. */
export async function folderEmbedding(folder: string): Promise<EmbeddingDefaults> {
  const read = async (...names: string[]): Promise<ConfigReader> => {
    const file = path.join(folder, ...names)
    return new ConfigReader((await isThere(file)) ? await readJson(file) : {}, file)
  }
  const settings = await read('sentence_bert_config.json')
  const tokenizer = await read('tokenizer_config.json')
  const lengths = [
    settings.has('max_seq_length') ? settings.integer('max_seq_length') : plain.maxLength,
    // Tokenizers without a limit write 1e30.
    tokenizer.has('model_max_length') ? tokenizer.number('model_max_length') : plain.maxLength,
  ]
  const common = { ...plain, ...promptsOf(await read('config_sentence_transformers.json')) }
  const maxLength = Math.min(...lengths)
  const file = path.join(folder, 'modules.json')
  if (!(await isThere(file))) return { ...common, maxLength }
  const modules = modulesOf(file, await readJson(file))
  const pooling = modules.find(({ kind }) => kind === 'Pooling')
  return {
    ...common,
    maxLength,
    ...(pooling ? poolingOf(await read(pooling.path, 'config.json')) : {}),
    normalize: modules.some(({ kind }) => kind === 'Normalize'),
  }
}

/** Kinds of the modules of a model and their folders. */
function modulesOf(file: string, json: unknown): { kind: string; path: string }[] {
  const list = Array.isArray(json) ? json : []
  const modules = list.map((item, i) => {
    const module = new ConfigReader(item, `module ${i} of ${file}`)
    return { kind: module.text('type').split('.').at(-1)!, path: module.text('path', '') }
  })
  const other = modules.find(({ kind }) => !['Transformer', 'Pooling', 'Normalize'].includes(kind))
  if (other)
    throw new SparkError('ERR_UNSUPPORTED', `${file}: modules of type ${other.kind} are not supported`)
  const outside = modules.find(module => path.isAbsolute(module.path) || module.path.includes('..'))
  if (!outside) return modules
  throw new SparkError('ERR_FORMAT', `${file}: '${outside.path}' is no folder of the model`)
}

function poolingOf(config: ConfigReader): Pick<EmbeddingDefaults, 'pooling' | 'includePrompt'> {
  const chosen = config.keys.filter(key => key.startsWith('pooling_mode_') && config.flag(key))
  const [mode] = chosen
  const pooling = chosen.length === 1 && Object.hasOwn(modes, mode!) ? modes[mode!] : undefined
  if (pooling) return { pooling, includePrompt: config.flag('include_prompt', true) }
  const list = Object.keys(modes).join(', ')
  const given = chosen.join(' and ') || 'no mode'
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `${config.nameOf('pooling')} asks for ${given}; supported is one of ${list}`,
  )
}

function promptsOf(config: ConfigReader): Pick<EmbeddingDefaults, 'prompts' | 'promptName'> {
  const prompts = config.object('prompts')
  return {
    prompts: new Map(prompts.keys.map(key => [key, prompts.text(key)])),
    promptName: config.has('default_prompt_name') ? config.text('default_prompt_name') : undefined,
  }
}

/** What the metadata of a GGUF file says: `pooling_type` of its architecture. */
export function ggufEmbedding(file: GgufFile): EmbeddingDefaults {
  const architecture = file.text('general.architecture') ?? ''
  const type = file.number(`${architecture}.pooling_type`) ?? 0
  const known: readonly (Pooling | undefined)[] = [undefined, 'mean', 'cls', 'last']
  if (Number.isInteger(type) && type >= 0 && type < known.length) return { ...plain, pooling: known[type] }
  throw new SparkError('ERR_UNSUPPORTED', `${architecture}.pooling_type ${type} is not supported`)
}
