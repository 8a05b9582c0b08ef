// weight-names.ts: what files call the weights of a decoder: those of transformers, and GGUF.

/** Names of whole-model weights, the first that a file has. */
export const modelNames = {
  embedding: [
    'model.embed_tokens.weight',
    'model.language_model.embed_tokens.weight',
    'language_model.model.embed_tokens.weight',
    'embed_tokens.weight',
    'transformer.wte.weight',
    'wte.weight',
    'gpt_neox.embed_in.weight',
    'embed_in.weight',
    'token_embd.weight',
  ],
  positions: ['transformer.wpe.weight', 'wpe.weight', 'position_embd.weight'],
  norm: [
    'model.norm',
    'model.language_model.norm',
    'language_model.model.norm',
    'norm',
    'transformer.ln_f',
    'ln_f',
    'gpt_neox.final_layer_norm',
    'final_layer_norm',
    'output_norm',
  ],
  head: ['lm_head', 'language_model.lm_head', 'embed_out', 'output'],
} as const

/** What names of a layer start with; the number of the layer and a point follow. */
export const layerPrefixes = [
  'model.layers.',
  'model.language_model.layers.',
  'language_model.model.layers.',
  'layers.',
  'transformer.h.',
  'h.',
  'gpt_neox.layers.',
  'blk.',
] as const

/** Names of the parts of a layer, the first that a file has. `.weight` and `.bias` follow. */
export const layerNames = {
  attentionNorm: ['input_layernorm', 'ln_1', 'attn_norm'],
  postAttentionNorm: ['post_attention_layernorm', 'post_attention_norm'],
  feedForwardNorm: ['pre_feedforward_layernorm', 'ln_2', 'ffn_norm'],
  postFeedForwardNorm: ['post_feedforward_layernorm', 'post_ffw_norm'],
  query: ['self_attn.q_proj', 'attn_q'],
  key: ['self_attn.k_proj', 'attn_k'],
  value: ['self_attn.v_proj', 'attn_v'],
  queryKeyValue: ['self_attn.qkv_proj', 'attn.c_attn', 'attention.query_key_value', 'attn_qkv'],
  attentionOutput: ['self_attn.o_proj', 'attn.c_proj', 'attention.dense', 'attn_output'],
  queryNorm: ['self_attn.q_norm', 'attn_q_norm'],
  keyNorm: ['self_attn.k_norm', 'attn_k_norm'],
  sinks: ['self_attn.sinks', 'attn_sinks'],
  gate: ['mlp.gate_proj', 'ffn_gate'],
  up: ['mlp.up_proj', 'mlp.c_fc', 'mlp.dense_h_to_4h', 'ffn_up'],
  gateUp: ['mlp.gate_up_proj'],
  down: ['mlp.down_proj', 'mlp.c_proj', 'mlp.dense_4h_to_h', 'ffn_down'],
  router: ['mlp.gate', 'block_sparse_moe.gate', 'mlp.router', 'ffn_gate_inp'],
  expertsGate: ['ffn_gate_exps'],
  expertsUp: ['ffn_up_exps'],
  expertsDown: ['ffn_down_exps', 'mlp.experts.down_proj', 'block_sparse_moe.experts.down_proj'],
  expertsGateUp: ['mlp.experts.gate_up_proj', 'block_sparse_moe.experts.gate_up_proj'],
} as const

/** A part of a layer. */
export type LayerPart = keyof typeof layerNames

/** Names of the matrices of one expert: gate, up, down. `{}` is its number. */
export const expertNames = [
  ['mlp.experts.{}.gate_proj', 'mlp.experts.{}.up_proj', 'mlp.experts.{}.down_proj'],
  ['block_sparse_moe.experts.{}.w1', 'block_sparse_moe.experts.{}.w3', 'block_sparse_moe.experts.{}.w2'],
] as const

/**
 * Tensors that files have and that texts do not need: masks, numbers of positions, frequencies that the configuration gives, quantizers'
 * notes, and what models of images and text have for images.
 */
export const unusedNames =
  /(^|\.)(embeddings\.(position|token_type)_ids|rotary_emb\.inv_freq|attn\.(bias|masked_bias)|attention\.(bias|masked_bias)|rope_freqs\.weight|rope_factors_(long|short)\.weight|[kv]_scale|input_(global_)?scale)$|^(model\.)?(vision_tower|multi_modal_projector)\./
