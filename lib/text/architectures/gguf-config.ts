// gguf-config.ts: the metadata of a GGUF file as the config.json of the same model.
import { SparkError } from '../../core/errors.js'
import type { GgufFile } from '../../io/gguf/file.js'

/** `model_type` by `general.architecture`. */
const types: Readonly<Record<string, string>> = {
  llama: 'llama',
  qwen2: 'qwen2',
  qwen3: 'qwen3',
  qwen3moe: 'qwen3_moe',
  gemma2: 'gemma2',
  gemma3: 'gemma3_text',
  phi3: 'phi3',
  gpt2: 'gpt2',
  gptneox: 'gpt_neox',
  smollm3: 'smollm3',
  olmo2: 'olmo2',
  granite: 'granite',
  starcoder2: 'starcoder2',
  stablelm: 'stablelm',
  'gpt-oss': 'gpt_oss',
  bert: 'bert',
}

/** Architectures whose converters put the two elements that are rotated together side by side. */
const interleaved = new Set(['llama', 'smollm3', 'granite'])

/** Layers of models of gemma whose scores are scaled by the hidden size of a head: those of 27 billion parameters. */
const scaledByHidden: Readonly<Record<string, number>> = { gemma2: 46, gemma3: 62 }

/** Keys of a config.json by those of the metadata, which follow the name of the architecture. */
const numberKeys = {
  hidden_size: 'embedding_length',
  num_hidden_layers: 'block_count',
  num_attention_heads: 'attention.head_count',
  num_key_value_heads: 'attention.head_count_kv',
  head_dim: 'attention.key_length',
  max_position_embeddings: 'context_length',
  rms_norm_eps: 'attention.layer_norm_rms_epsilon',
  layer_norm_eps: 'attention.layer_norm_epsilon',
  layer_norm_epsilon: 'attention.layer_norm_epsilon',
  sliding_window: 'attention.sliding_window',
  rope_theta: 'rope.freq_base',
  original_max_position_embeddings: 'rope.scaling.original_context_length',
  final_logit_softcapping: 'final_logit_softcapping',
  attn_logit_softcapping: 'attn_logit_softcapping',
  num_experts: 'expert_count',
  num_local_experts: 'expert_count',
  num_experts_per_tok: 'expert_used_count',
  attention_multiplier: 'attention.scale',
  embedding_multiplier: 'embedding_scale',
  residual_multiplier: 'residual_scale',
  logits_scaling: 'logit_scale',
} as const

/** What llama.cpp takes for keys of gemma2 that a file lacks. */
const gemma2Defaults = { sliding_window: 4096, attn_logit_softcapping: 50, final_logit_softcapping: 30 }

/** Keys of `rope_scaling`. */
const scalingKeys = {
  factor: 'rope.scaling.factor',
  attention_factor: 'rope.scaling.attn_factor',
  beta_fast: 'rope.scaling.yarn_beta_fast',
  beta_slow: 'rope.scaling.yarn_beta_slow',
} as const

/**
 * What a GGUF file says of its model, by the keys of a config.json.
 * @throws SparkError ERR_UNSUPPORTED for an architecture that is not known, naming it; ERR_FORMAT for values that are wrong
 */
export async function configOfGguf(file: GgufFile): Promise<Record<string, unknown>> {
  const architecture = file.text('general.architecture') ?? ''
  const type = Object.hasOwn(types, architecture) ? types[architecture] : undefined
  if (!type) {
    const list = Object.keys(types).join(', ')
    const message = `architecture '${architecture}' of a GGUF file is not supported; these are: ${list}`
    throw new SparkError('ERR_UNSUPPORTED', message)
  }
  const number = (key: string): number | undefined => file.number(`${architecture}.${key}`)
  const values = numbersOf(number, numberKeys)
  const isMixtral = type === 'llama' && (number('expert_count') ?? 0) > 0
  const rotated = number('rope.dimension_count')
  const headSize = number('attention.key_length') ?? headSizeOf(values)
  const divisors = file.tensors.get('rope_freqs.weight')
  // Converters write true for models of stablelm that do not say it; llama.cpp looks for the second normalization.
  const parallel =
    architecture === 'stablelm'
      ? !file.tensors.has('blk.0.ffn_norm.weight')
      : file.flag(`${architecture}.use_parallel_residual`)
  return {
    ...values,
    model_type: isMixtral ? 'mixtral' : type,
    vocab_size: file.tensors.get('token_embd.weight')?.shape[0],
    rope_scaling: await scalingOf(file, architecture),
    partial_rotary_factor: rotated !== undefined && headSize ? rotated / headSize : undefined,
    rope_divisors: divisors && Array.from(await divisors.values()),
    rope_interleaved: interleaved.has(architecture),
    norm_plus_one: false,
    norm_topk_prob: true,
    use_parallel_residual: parallel,
    ...(architecture === 'gemma3' ? { rope_local_base_freq: number('rope.freq_base_swa') ?? 10_000 } : {}),
    ...(architecture === 'gemma2' ? orElse(values, gemma2Defaults) : {}),
    // Keys without a value keep the defaults of a config.json away.
    rotary_pct: undefined,
    query_pre_attn_scalar:
      scaledByHidden[architecture] === values.num_hidden_layers ? headSizeOf(values) : undefined,
  }
}

const headSizeOf = ({ hidden_size: hidden, num_attention_heads: heads }: Record<string, unknown>): number =>
  (hidden as number) / (heads as number)

const orElse = (values: Record<string, unknown>, defaults: Readonly<Record<string, number>>): object =>
  Object.fromEntries(Object.entries(defaults).map(([key, value]) => [key, values[key] ?? value]))

/** The numbers that a file has; undefined for keys that it lacks. */
function numbersOf(
  number: (key: string) => number | undefined,
  keys: Readonly<Record<string, string>>,
): Record<string, unknown> {
  return Object.fromEntries(Object.entries(keys).map(([key, own]) => [key, number(own)]))
}

async function scalingOf(file: GgufFile, architecture: string): Promise<Record<string, unknown>> {
  const factors = await Promise.all(
    ['short', 'long'].map(async kind => {
      const tensor = file.tensors.get(`rope_factors_${kind}.weight`)
      return tensor && Array.from(await tensor.values())
    }),
  )
  const values = numbersOf(key => file.number(`${architecture}.${key}`), scalingKeys)
  if (factors[0] && factors[1])
    return { rope_type: 'longrope', short_factor: factors[0], long_factor: factors[1], ...values }
  const type = file.text(`${architecture}.rope.scaling.type`) ?? 'none'
  // Converters leave the rounding of the correction range out, and only those of gpt-oss do not round.
  return { ...values, rope_type: type, truncate: architecture !== 'gpt-oss' }
}
