// config-defaults.ts: what transformers takes for keys that a config.json lacks, where that differs from what all models take.

const gemma = { num_key_value_heads: 4, head_dim: 256, query_pre_attn_scalar: 256, sliding_window: 4096 }
const qwen = { num_key_value_heads: 32, max_window_layers: 28, sliding_window: 4096 }

const defaults: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  mistral: { num_key_value_heads: 8, sliding_window: 4096 },
  mixtral: {
    num_key_value_heads: 8,
    num_local_experts: 8,
    num_experts_per_tok: 2,
    rms_norm_eps: 1e-5,
    rope_theta: 1e6,
  },
  qwen2: qwen,
  qwen3: { ...qwen, head_dim: 128 },
  qwen3_moe: { num_key_value_heads: 4, num_experts_per_tok: 8, sliding_window: 4096 },
  gemma2: { ...gemma, attn_logit_softcapping: 50, final_logit_softcapping: 30 },
  gemma3_text: { ...gemma, rope_theta: 1e6, rope_local_base_freq: 10_000 },
  phi3: { rms_norm_eps: 1e-5, original_max_position_embeddings: 4096 },
  gpt_neox: { hidden_act: 'gelu', rotary_pct: 0.25 },
  smollm3: { num_key_value_heads: 4, rope_theta: 2e6 },
  olmo2: { rms_norm_eps: 1e-5 },
  starcoder2: { num_key_value_heads: 2 },
  stablelm: { num_key_value_heads: 32, partial_rotary_factor: 0.25 },
  gpt_oss: {
    num_key_value_heads: 8,
    head_dim: 64,
    num_local_experts: 128,
    num_experts_per_tok: 4,
    sliding_window: 128,
    rms_norm_eps: 1e-5,
    rope_theta: 150_000,
  },
  modernbert: { global_rope_theta: 160_000, local_rope_theta: 10_000 },
}

/** The values of a configuration with those that its type has by default. A key whose value is null or undefined keeps it. */
export function withDefaults(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const type = String(values.model_type)
  return { ...(Object.hasOwn(defaults, type) ? defaults[type] : {}), ...values }
}
