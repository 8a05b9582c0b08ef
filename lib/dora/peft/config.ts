// config.ts: parsing and formatting of adapter_config.json (PEFT 0.21).
import { SparkError } from '../../core/errors.js'

/** The settings of an adapter that affect its results. */
export interface PeftConfig {
  /** Rank of modules that no pattern matches. */
  readonly r: number
  /** Alpha of modules that no pattern matches. */
  readonly loraAlpha: number
  /** Dropout probability in training. */
  readonly loraDropout: number
  /** DoRA if true, LoRA otherwise. */
  readonly useDora: boolean
  /** Whether the scale is alpha / √r instead of alpha / r. */
  readonly useRslora: boolean
  /** The biases that the adapter contains. */
  readonly bias: 'none' | 'all' | 'lora_only'
  /** The adapted modules: a regular expression, or names. */
  readonly targetModules: string | readonly string[] | null
  /** Modules that the adapter replaces entirely. */
  readonly modulesToSave: readonly string[]
  /** Every key of the file, in file order; saving writes them back. */
  readonly raw: Readonly<Record<string, unknown>>
}

/** The keys of LoraConfig with their default values. */
const defaults: Readonly<Record<string, unknown>> = {
  alora_invocation_tokens: null,
  alpha_pattern: {},
  arrow_config: null,
  auto_mapping: null,
  base_model_name_or_path: null,
  bias: 'none',
  corda_config: null,
  ensure_weight_tying: false,
  eva_config: null,
  exclude_modules: null,
  fan_in_fan_out: false,
  inference_mode: true,
  init_lora_weights: true,
  kasa_config: null,
  layer_replication: null,
  layers_pattern: null,
  layers_to_transform: null,
  loftq_config: {},
  lora_alpha: 8,
  lora_bias: false,
  lora_dropout: 0,
  lora_ga_config: null,
  megatron_config: null,
  megatron_core: 'megatron.core',
  modules_to_save: null,
  monteclora_config: null,
  peft_type: 'LORA',
  peft_version: '0.21.0',
  qalora_group_size: 16,
  r: 8,
  rank_pattern: {},
  revision: null,
  target_modules: null,
  target_parameters: null,
  task_type: null,
  trainable_token_indices: null,
  use_bdlora: null,
  use_dora: false,
  use_qalora: false,
  use_rslora: false,
  velora_config: null,
}

/** Options that change what an adapter computes and are not supported. */
const unsupported = [
  'alora_invocation_tokens',
  'arrow_config',
  'kasa_config',
  'layer_replication',
  'lora_bias',
  'megatron_config',
  'monteclora_config',
  'target_parameters',
  'trainable_token_indices',
  'use_bdlora',
  'use_qalora',
  'velora_config',
]

/** Initializations that modify the base weight, so the adapter does not fit the published base model. */
const mutatingInits = /^(pissa|olora|corda|loftq|lora_ga|kasa)/

/**
 * Parses and checks the text of an adapter_config.json. Unknown keys are kept and ignored.
 * @throws SparkError ERR_FORMAT for a malformed file, ERR_UNSUPPORTED naming an option that changes the results
 */
export function parseConfig(file: string, text: string): PeftConfig {
  const raw = parseObject(file, text)
  const get = (key: string): unknown => (Object.hasOwn(raw, key) ? raw[key] : undefined) ?? defaults[key]
  const fail = (key: string, expected: string): SparkError =>
    new SparkError('ERR_FORMAT', `${file}: ${key} must be ${expected}, got ${JSON.stringify(get(key))}`)
  const refuse = (key: string, why: string): SparkError =>
    new SparkError('ERR_UNSUPPORTED', `${file}: ${key} is ${JSON.stringify(get(key))}: ${why}`)

  if (!Object.hasOwn(raw, 'peft_type')) throw new SparkError('ERR_FORMAT', `${file}: peft_type is missing`)
  if (raw.peft_type !== 'LORA')
    throw refuse('peft_type', 'only LORA adapters (DoRA is one of them) can be read')
  for (const key of unsupported) if (get(key)) throw refuse(key, 'adapters with this option cannot be read')
  const init = get('init_lora_weights')
  if (typeof init === 'string' && mutatingInits.test(init.toLowerCase())) {
    throw refuse(
      'init_lora_weights',
      'it changed the base weight; save the adapter with path_initial_model_for_weight_conversion',
    )
  }
  const r = get('r')
  const loraAlpha = get('lora_alpha')
  const loraDropout = get('lora_dropout')
  const bias = get('bias')
  const targetModules = get('target_modules')
  const modulesToSave = get('modules_to_save') ?? []
  if (!isRank(r)) throw fail('r', 'an integer >= 1')
  if (!isNumber(loraAlpha)) throw fail('lora_alpha', 'a number')
  if (!isNumber(loraDropout) || loraDropout < 0 || loraDropout > 1)
    throw fail('lora_dropout', 'a number in [0, 1]')
  if (bias !== 'none' && bias !== 'all' && bias !== 'lora_only') throw fail('bias', 'none, all or lora_only')
  if (targetModules !== null && typeof targetModules !== 'string' && !isStrings(targetModules)) {
    throw fail('target_modules', 'a string or a list of strings')
  }
  if (!isStrings(modulesToSave)) throw fail('modules_to_save', 'a list of strings')
  for (const key of ['use_dora', 'use_rslora', 'fan_in_fan_out']) {
    if (typeof get(key) !== 'boolean') throw fail(key, 'true or false')
  }
  if (!isPattern(get('rank_pattern'), isRank)) throw fail('rank_pattern', 'an object of integers >= 1')
  if (!isPattern(get('alpha_pattern'), isNumber)) throw fail('alpha_pattern', 'an object of numbers')
  const useDora = get('use_dora') === true
  const useRslora = get('use_rslora') === true
  return { r, loraAlpha, loraDropout, useDora, useRslora, bias, targetModules, modulesToSave, raw }
}

/** The config of a new adapter; `changes` override PEFT's defaults. */
export function newConfig(changes: Readonly<Record<string, unknown>>): PeftConfig {
  return parseConfig('adapter_config.json', JSON.stringify({ ...defaults, ...changes }))
}

/** The text of adapter_config.json, byte for byte as PEFT writes it. */
export function formatConfig(config: PeftConfig): string {
  const text = JSON.stringify(sorted(config.raw), null, 2)
  return text
    .replace(/^( {2}"lora_dropout": -?\d+)(,?)$/m, '$1.0$2') // a Python float
    .replace(/[\u007f-\uffff]/g, char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

function parseObject(file: string, text: string): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new SparkError('ERR_FORMAT', `${file} is not JSON: ${(error as Error).message}`, { cause: error })
  }
  if (!isObject(value)) throw new SparkError('ERR_FORMAT', `${file} is not a JSON object`)
  return value
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isNumber(value: unknown): value is number {
  return Number.isFinite(value)
}

function isRank(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 1
}

function isStrings(value: unknown): value is string[] {
  return Array.isArray(value) && value.every(item => typeof item === 'string')
}

function isPattern(value: unknown, isValue: (value: unknown) => boolean): boolean {
  return isObject(value) && Object.values(value).every(isValue)
}

/** `value` with the keys of all objects sorted. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (!isObject(value)) return value
  const keys = Object.keys(value).sort()
  return Object.fromEntries(keys.map(key => [key, sorted(value[key])]))
}
