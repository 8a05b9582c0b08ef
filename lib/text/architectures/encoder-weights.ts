// encoder-weights.ts: the weights of an encoder by what they are for, whatever their file calls them.
import type { Constant } from '../../graph/constant.js'
import type { WeightSource } from './config.js'
import { type LinearWeights, NamedWeights } from './named-weights.js'

/** What files call the weights of an encoder: transformers, and GGUF. */
const names = {
  prefixes: ['encoder.layer.', 'transformer.layer.', 'layers.', 'blk.'],
  parts: {
    query: ['attention.self.query', 'attention.q_lin', 'attn_q'],
    key: ['attention.self.key', 'attention.k_lin', 'attn_k'],
    value: ['attention.self.value', 'attention.v_lin', 'attn_v'],
    queryKeyValue: ['attn.Wqkv', 'attn_qkv'],
    attentionOutput: ['attention.output.dense', 'attention.out_lin', 'attn.Wo', 'attn_output'],
    attentionNorm: ['attention.output.LayerNorm', 'sa_layer_norm', 'attn_norm', 'attn_output_norm'],
    gate: ['ffn_gate'],
    up: ['intermediate.dense', 'ffn.lin1', 'ffn_up'],
    gateUp: ['mlp.Wi'],
    down: ['output.dense', 'ffn.lin2', 'mlp.Wo', 'ffn_down'],
    feedForwardNorm: ['output.LayerNorm', 'output_layer_norm', 'mlp_norm', 'layer_output_norm'],
  },
  unused:
    /^(pooler\.|cls\.|lm_head\.|vocab_(transform|layer_norm|projector)\.|head\.|decoder\.|(pre_)?classifier\.)/,
} as const

/** A part of a layer. */
export type EncoderPart = keyof typeof names.parts

/** The name of the model that a head is on, as in bert.encoder.layer.0. */
const baseName = /^(bert|roberta|distilbert|model)\./

/** The weights of an encoder. Names are those without the name of the model in front. */
export class EncoderWeights extends NamedWeights<EncoderPart> {
  /** @throws SparkError ERR_FORMAT when there are no layers */
  constructor(source: WeightSource) {
    super(withPlainNames(source), names)
  }

  /** Table of the vocabulary, [tokens, hidden size]. */
  get embedding(): Constant {
    const candidates = ['embeddings.word_embeddings.weight', 'embeddings.tok_embeddings.weight']
    return this.firstOf('embedding', [...candidates, 'token_embd.weight'])
  }

  /** Learned positions, [positions, hidden size]. */
  get positions(): Constant | undefined {
    return this.optionalOf(['embeddings.position_embeddings.weight', 'position_embd.weight'])
  }

  /** What tokens of the first and the second text of a pair have in common, [types, hidden size]. */
  get tokenTypes(): Constant | undefined {
    return this.optionalOf(['embeddings.token_type_embeddings.weight', 'token_types.weight'])
  }

  /** Normalization of embeddings. */
  get embeddingNorm(): LinearWeights | undefined {
    return this.optionalLinear(['embeddings.LayerNorm', 'embeddings.norm', 'token_embd_norm'])
  }

  /** Normalization behind the last layer. */
  get finalNorm(): LinearWeights | undefined {
    return this.optionalLinear(['final_norm', 'output_norm'])
  }
}

/** A source without names of models in front, and with names of normalizations as of today in place of gamma and beta. */
function withPlainNames(source: WeightSource): WeightSource {
  const own = new Map(
    source.names.map(name => {
      const plain = name.replace(baseName, '')
      return [plain.replace(/\.gamma$/, '.weight').replace(/\.beta$/, '.bias'), name]
    }),
  )
  const nameOf = (plain: string): string => own.get(plain) ?? plain
  return {
    names: [...own.keys()],
    has: name => own.has(name),
    shape: name => source.shape(nameOf(name)),
    constant: (name, transposed) => source.constant(nameOf(name), transposed),
    stack: list => source.stack(list.map(nameOf)),
  }
}
