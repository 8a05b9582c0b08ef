// encoder-config.ts: the supported encoders, each by what it differs in from bert, read from a config.json.
import { SparkError } from '../../core/errors.js'
import type { FeedForwardActivation, NormTraits, Rotary } from './config.js'
import { withDefaults } from './config-defaults.js'
import { ConfigReader } from './config-reader.js'
import { rotaryOf } from './rotary.js'
import { activationOf, hasWindow } from './traits.js'

/** Attention of a layer. */
export interface EncoderLayer {
  /** Heads of queries, keys and values. */
  readonly heads: number
  /** Elements of a head. */
  readonly headSize: number
  /** How far a key may be from the query that sees it, in tokens; Infinity: all are seen. */
  readonly distance: number
  /** Absent: positions do not enter here. */
  readonly rotary: Rotary | undefined
}

/** An encoder. */
export interface EncoderConfig extends NormTraits {
  /** `model_type`, as Hugging Face's transformers name it. */
  readonly type: string
  /** Elements of the state of a token. */
  readonly hiddenSize: number
  /** Tokens of the vocabulary. */
  readonly vocabularySize: number
  /** Tokens of the longest text. */
  readonly contextLength: number
  /** Row of the learned positions that is the first token's. */
  readonly firstPosition: number
  /** Whether normalizations are in front of attention and feed-forward network; else behind, with what is added to. */
  readonly normFirst: boolean
  /** Between the matrices of a feed-forward network. */
  readonly activation: FeedForwardActivation
  /** Layers, first to last. */
  readonly layers: readonly EncoderLayer[]
}

/** A family of models: what differs from bert. */
interface Family {
  /** Keys of bert by its own ones. */
  readonly keys?: Readonly<Record<string, string>>
  readonly common?: (config: ConfigReader) => Partial<EncoderConfig>
  readonly layer?: (config: ConfigReader, index: number, headSize: number) => Partial<EncoderLayer>
}

/** Positions behind those that padding would have. */
const roberta: Family = {
  common: config => {
    const firstPosition = config.integer('pad_token_id', 1, 0) + 1
    return {
      firstPosition,
      contextLength: config.integer('max_position_embeddings') - firstPosition,
    }
  },
}

/** Rotary embeddings whose frequencies do not depend on the length of a text. */
function shortRotary(config: ConfigReader, headSize: number, isWindowed: boolean): Rotary {
  const rotary = rotaryOf(config, headSize, isWindowed)
  if (rotary.frequencies.length === 1) return rotary
  throw new SparkError('ERR_UNSUPPORTED', "rotary embeddings of type 'longrope' are for decoders only")
}

/** All families by `model_type`. */
const families: Readonly<Record<string, Family>> = {
  bert: {},
  distilbert: {
    keys: {
      hidden_size: 'dim',
      num_hidden_layers: 'n_layers',
      num_attention_heads: 'n_heads',
      hidden_act: 'activation',
    },
  },
  roberta,
  'xlm-roberta': roberta,
  camembert: roberta,
  modernbert: {
    keys: {
      hidden_act: 'hidden_activation',
      layer_norm_eps: 'norm_eps',
      rope_theta: 'global_rope_theta',
      rope_local_base_freq: 'local_rope_theta',
    },
    common: config => ({ normFirst: true, epsilon: config.number('layer_norm_eps', 1e-5) }),
    layer: (config, index, headSize) => {
      const isGlobal = index % config.integer('global_attn_every_n_layers', 3) === 0
      const isWindowed = hasWindow(config, index, !isGlobal)
      const distance = isWindowed
        ? Math.floor(config.integer('local_attention', 128) / 2)
        : Number.POSITIVE_INFINITY
      return { distance, rotary: shortRotary(config, headSize, isWindowed) }
    },
  },
}

/** `model_type`s of encoders that are supported. */
export const encoderTypes: readonly string[] = Object.keys(families)

/**
 * What a config.json says of an encoder.
 * @throws SparkError ERR_UNSUPPORTED for a model that is not known, naming it, or a trait that is not supported; ERR_FORMAT for
 * values that are missing or wrong
 */
export function readEncoderConfig(json: unknown, where = 'config.json'): EncoderConfig {
  const type = new ConfigReader(json, where).text('model_type')
  const family = Object.hasOwn(families, type) ? families[type] : undefined
  if (!family) {
    const list = encoderTypes.join(', ')
    const message = `${where} is that of a model of type '${type}'; supported encoders are ${list}`
    throw new SparkError('ERR_UNSUPPORTED', message)
  }
  const values = withDefaults(json as Record<string, unknown>)
  for (const [key, own] of Object.entries(family.keys ?? {})) values[key] ??= values[own]
  const config = new ConfigReader(values, where)
  expectSupported(config)
  return {
    type,
    hiddenSize: config.integer('hidden_size'),
    vocabularySize: config.integer('vocab_size'),
    contextLength: config.integer('max_position_embeddings'),
    firstPosition: 0,
    norm: 'layer',
    epsilon: config.number('layer_norm_eps', 1e-12),
    normPlusOne: false,
    normFirst: false,
    activation: activationOf(config, 'hidden_act', 'gelu'),
    layers: layersOf(config, family),
    ...family.common?.(config),
  }
}

function expectSupported(config: ConfigReader): void {
  const positions = config.text('position_embedding_type', 'absolute')
  const isCausal = config.flag('is_decoder', false)
  if (positions === 'absolute' && !isCausal) return
  const name = config.nameOf(isCausal ? 'is_decoder' : 'position_embedding_type')
  throw new SparkError('ERR_UNSUPPORTED', `${name} is '${isCausal || positions}', which is not supported`)
}

function layersOf(config: ConfigReader, family: Family): EncoderLayer[] {
  const [hidden, heads] = [config.integer('hidden_size'), config.integer('num_attention_heads')]
  const headSize = hidden / heads
  if (!Number.isInteger(headSize)) {
    const sizes = `hidden_size ${hidden}, num_attention_heads ${heads}`
    throw new SparkError('ERR_FORMAT', `sizes do not fit each other: ${sizes}`)
  }
  const plain = { heads, headSize, distance: Number.POSITIVE_INFINITY, rotary: undefined }
  return Array.from({ length: config.layerCount }, (_, index) => ({
    ...plain,
    ...family.layer?.(config, index, headSize),
  }))
}
