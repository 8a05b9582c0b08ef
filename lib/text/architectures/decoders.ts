// decoders.ts: the supported decoders, each by what it differs in from llama, read from a config.json.
import { SparkError } from '../../core/errors.js'
import type { DecoderConfig, Experts, LayerConfig } from './config.js'
import { withDefaults } from './config-defaults.js'
import { ConfigReader } from './config-reader.js'
import { rotaryOf } from './rotary.js'
import { activationOf, hasWindow } from './traits.js'

/** What the layers of a model have in common. */
type Common = Omit<DecoderConfig, 'layers' | 'type' | 'hiddenSize' | 'vocabularySize' | 'contextLength'>

/** What differs in a layer; `hasPositions`: whether it has rotary embeddings. */
type LayerTraits = Partial<LayerConfig> & { readonly hasPositions?: boolean }

/** A family of models: what differs from llama. */
interface Family {
  readonly common?: (config: ConfigReader) => Partial<Common>
  readonly layer?: (config: ConfigReader, index: number, layer: LayerConfig) => LayerTraits
}

const layerNorm = (config: ConfigReader): Partial<Common> => ({
  norm: 'layer',
  epsilon: config.number('layer_norm_eps', config.number('norm_epsilon', 1e-5)),
})

const usedExperts = (
  config: ConfigReader,
  count: string,
  scores: Experts['scores'],
  normalized: boolean,
): Partial<LayerConfig> => {
  const experts = config.integer(count)
  const used = config.integer('num_experts_per_tok')
  if (used > experts)
    throw new SparkError('ERR_FORMAT', `a token uses ${used} experts, but there are ${experts}`)
  return { experts: { count: experts, used, scores, normalized } }
}

/** A window on all layers, if there is one. */
const windowed = (config: ConfigReader): Partial<LayerConfig> =>
  config.has('sliding_window') ? { window: config.integer('sliding_window') } : {}

const windowOf = (config: ConfigReader, index: number, period: number): Partial<LayerConfig> =>
  hasWindow(config, index, (index + 1) % period !== 0) ? { window: config.integer('sliding_window') } : {}

const gemma = (config: ConfigReader): Partial<Common> => ({
  normPlusOne: config.flag('norm_plus_one', true),
  activation: activationOf(config, 'hidden_activation', 'gelu_pytorch_tanh'),
  embeddingScale: Math.sqrt(config.integer('hidden_size')),
  logitSoftcap: config.number('final_logit_softcapping', 0),
})

const gemmaAttention = (config: ConfigReader, { headSize }: LayerConfig): Partial<LayerConfig> => {
  if (config.flag('use_bidirectional_attention', false))
    throw unsupportedTrait(config, 'use_bidirectional_attention')
  return {
    scale: config.number('query_pre_attn_scalar', headSize) ** -0.5,
    softcap: config.number('attn_logit_softcapping', 0),
  }
}

const qwenWindow = (config: ConfigReader, index: number): Partial<LayerConfig> => {
  if (!config.flag('use_sliding_window', false)) return {}
  if (config.has('layer_types')) return windowOf(config, index, 1)
  return index >= config.integer('max_window_layers', 0, 0) ? windowed(config) : {}
}

/** All families by `model_type`. */
const families: Readonly<Record<string, Family>> = {
  llama: {},
  mistral: { layer: windowed },
  mixtral: {
    layer: config => ({ ...windowed(config), ...usedExperts(config, 'num_local_experts', 'used', true) }),
  },
  qwen2: { layer: qwenWindow },
  qwen3: { layer: qwenWindow },
  qwen3_moe: {
    layer: (config, index) => {
      const dense = config.has('mlp_only_layers') && config.numbers('mlp_only_layers').includes(index)
      const isSparse = !dense && (index + 1) % config.integer('decoder_sparse_step', 1) === 0
      const normalized = config.flag('norm_topk_prob', false)
      const count = config.has('num_experts') ? 'num_experts' : 'num_local_experts'
      const experts = isSparse ? usedExperts(config, count, 'all', normalized) : {}
      return { ...(config.flag('use_sliding_window', false) ? windowed(config) : {}), ...experts }
    },
  },
  gemma2: {
    common: gemma,
    layer: (config, index, layer) => ({
      ...gemmaAttention(config, layer),
      ...windowOf(config, index, 2),
    }),
  },
  gemma3_text: {
    common: gemma,
    layer: (config, index, layer) => ({
      ...gemmaAttention(config, layer),
      ...windowOf(config, index, config.integer('sliding_window_pattern', 6)),
    }),
  },
  phi3: { layer: windowed },
  gpt2: {
    common: config => ({
      ...layerNorm(config),
      epsilon: config.number('layer_norm_epsilon', 1e-5),
      activation: activationOf(config, 'activation_function', 'gelu_new'),
    }),
    layer: (config, index) => ({ hasPositions: false, scale: gpt2Scale(config, index) }),
  },
  gpt_neox: {
    common: config => ({ ...layerNorm(config), parallel: config.flag('use_parallel_residual', true) }),
  },
  smollm3: {
    layer: (config, index) => {
      const hasPositions = config.has('no_rope_layers')
        ? config.numbers('no_rope_layers')[index] !== 0
        : (index + 1) % config.integer('no_rope_layer_interval', 4) !== 0
      if (!config.flag('use_sliding_window', false)) return { hasPositions }
      const isWindowed = hasWindow(config, index, !hasPositions)
      return { hasPositions, ...(isWindowed ? windowed(config) : {}) }
    },
  },
  olmo2: {
    common: config => {
      // That of OLMo 3, in GGUF files.
      if (config.has('sliding_window')) throw unsupportedTrait(config, 'sliding_window')
      return { wholeQkNorm: true }
    },
  },
  granite: {
    common: config => ({
      embeddingScale: config.number('embedding_multiplier', 1),
      residualScale: config.number('residual_multiplier', 1),
      logitScale: 1 / config.number('logits_scaling', 1),
    }),
    layer: config => ({ scale: config.number('attention_multiplier', 1) }),
  },
  starcoder2: {
    common: config => ({
      ...layerNorm(config),
      activation: activationOf(config, 'hidden_act', 'gelu_pytorch_tanh'),
    }),
    layer: windowed,
  },
  stablelm: {
    common: config => {
      if (config.flag('qk_layernorm', false)) throw unsupportedTrait(config, 'qk_layernorm')
      return { ...layerNorm(config), parallel: config.flag('use_parallel_residual', false) }
    },
  },
  gpt_oss: {
    common: () => ({ activation: 'clamped_swiglu' }),
    layer: (config, index) => ({
      ...windowOf(config, index, 2),
      ...usedExperts(config, 'num_local_experts', 'used', true),
    }),
  },
}

function unsupportedTrait(config: ConfigReader, key: string): SparkError {
  return new SparkError('ERR_UNSUPPORTED', `${config.nameOf(key)} asks for what is not supported`)
}

function gpt2Scale(config: ConfigReader, index: number): number {
  const headSize = config.integer('hidden_size') / config.integer('num_attention_heads')
  const scaled = config.flag('scale_attn_weights', true) ? headSize ** -0.5 : 1
  return config.flag('scale_attn_by_inverse_layer_idx', false) ? scaled / (index + 1) : scaled
}

/** `model_type`s of decoders that are supported. */
export const decoderTypes: readonly string[] = Object.keys(families)

/** Keys of GPT-2 by those of all others. */
const olderKeys = {
  hidden_size: 'n_embd',
  num_hidden_layers: 'n_layer',
  num_attention_heads: 'n_head',
  max_position_embeddings: 'n_positions',
}

/**
 * What a config.json says of a decoder. Text models inside of others (`text_config`) are read as themselves.
 * @throws SparkError ERR_UNSUPPORTED for a model that is not known, naming it; ERR_FORMAT for values that are missing or wrong
 */
export function readDecoderConfig(json: unknown, where = 'config.json'): DecoderConfig {
  const outer = new ConfigReader(json, where)
  const inner = (outer.has('text_config') ? outer.raw('text_config') : json) as Record<string, unknown>
  const values = withDefaults(inner)
  for (const [key, older] of Object.entries(olderKeys)) values[key] ??= values[older]
  const config = new ConfigReader(values, where)
  const type = config.text('model_type')
  const family = Object.hasOwn(families, type) ? families[type] : undefined
  if (!family) {
    const list = decoderTypes.join(', ')
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${where} is that of a model of type '${type}'; supported decoders are ${list}`,
    )
  }
  const own = family.common?.(config) ?? {}
  const common: Common = {
    norm: 'rms',
    epsilon: config.number('rms_norm_eps', 1e-6),
    normPlusOne: false,
    parallel: false,
    wholeQkNorm: false,
    activation: own.activation ?? activationOf(config, 'hidden_act', 'silu'),
    embeddingScale: 1,
    residualScale: 1,
    logitScale: 1,
    logitSoftcap: 0,
    ...own,
  }
  const layers = Array.from({ length: config.layerCount }, (_, index) => layerOf(config, family, index))
  return {
    type,
    hiddenSize: config.integer('hidden_size'),
    vocabularySize: config.integer('vocab_size'),
    contextLength: config.integer('max_position_embeddings'),
    layers,
    ...common,
  }
}

function layerOf(config: ConfigReader, family: Family, index: number): LayerConfig {
  const heads = config.integer('num_attention_heads')
  const kvHeads = config.integer('num_key_value_heads', heads)
  const hidden = config.integer('hidden_size')
  const headSize = config.has('head_dim') ? config.integer('head_dim') : hidden / heads
  if (!Number.isInteger(headSize) || heads % kvHeads !== 0) {
    const sizes = `hidden_size ${hidden}, num_attention_heads ${heads}, num_key_value_heads ${kvHeads}`
    throw new SparkError('ERR_FORMAT', `sizes do not fit each other: ${sizes}`)
  }
  const plain: LayerConfig = {
    heads,
    kvHeads,
    headSize,
    scale: headSize ** -0.5,
    softcap: 0,
    window: Number.POSITIVE_INFINITY,
    rotary: undefined,
    experts: undefined,
  }
  const { hasPositions = true, ...own } = family.layer?.(config, index, plain) ?? {}
  const layer = { ...plain, ...own }
  const isWindowed = layer.window !== Number.POSITIVE_INFINITY
  return hasPositions ? { ...layer, rotary: rotaryOf(config, headSize, isWindowed) } : layer
}
