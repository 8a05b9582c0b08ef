// config.ts: what the supported language models differ in, whatever file it was read from.
import type { Constant } from '../../graph/constant.js'

/** Rotary angles: position · frequency for each pair of elements. */
export interface Rotary {
  /**
   * Angle of a position for each pair of elements, rad: [elements / 2]. Two lists where the frequencies depend on the length of a
   * sequence: up to `shortLength` tokens the first one holds, beyond it the second one.
   */
  readonly frequencies: readonly (readonly number[])[]
  /** Tokens up to which the first of two lists holds; Infinity where there is one. */
  readonly shortLength: number
  /** What cosines and sines are multiplied with. */
  readonly factor: number
  /** Whether a pair is two neighbours; else its elements are half of the rotated ones apart. */
  readonly interleaved: boolean
}

/** A mixture of experts in place of a feed-forward network. */
export interface Experts {
  /** How many there are. */
  readonly count: number
  /** How many a token uses. */
  readonly used: number
  /** Weights of the experts: softmax over all of them or over those that are used. */
  readonly scores: 'all' | 'used'
  /** With scores over all: whether those of the used ones are divided by their sum. */
  readonly normalized: boolean
}

/** Attention and feed-forward network of a layer. */
export interface LayerConfig {
  /** Heads of the queries. */
  readonly heads: number
  /** Heads of the keys and values, a divisor of `heads`. */
  readonly kvHeads: number
  /** Elements of a head. */
  readonly headSize: number
  /** What q · k is multiplied with. */
  readonly scale: number
  /** c of c · tanh(score / c); 0: scores are not limited. */
  readonly softcap: number
  /** Keys that a query sees, itself included; Infinity: all. */
  readonly window: number
  /** Absent: positions do not enter here. */
  readonly rotary: Rotary | undefined
  /** Absent: a dense network. */
  readonly experts: Experts | undefined
}

/** Functions between the matrices of a feed-forward network; `clamped_swiglu` is that of gpt-oss. */
export type FeedForwardActivation = 'silu' | 'gelu' | 'gelu_tanh' | 'relu' | 'clamped_swiglu'

/** Which normalization a model has. */
export interface NormTraits {
  /** By the root of the mean square, or layer normalization. */
  readonly norm: 'rms' | 'layer'
  /** Added to variances. */
  readonly epsilon: number
  /** Whether weights of normalizations are stored less 1. */
  readonly normPlusOne: boolean
}

/** A decoder. */
export interface DecoderConfig extends NormTraits {
  /** `model_type`, as Hugging Face's transformers name it. */
  readonly type: string
  /** Elements of the state of a token. */
  readonly hiddenSize: number
  /** Tokens of the vocabulary. */
  readonly vocabularySize: number
  /** Tokens of the longest sequence that it was made for. */
  readonly contextLength: number
  /** Layers, first to last. */
  readonly layers: readonly LayerConfig[]
  /** Whether attention and feed-forward network read the same state and are added together. */
  readonly parallel: boolean
  /** Whether queries and keys are normalized as a whole; else each head is where there are weights for it. */
  readonly wholeQkNorm: boolean
  /** Between the matrices of a feed-forward network. */
  readonly activation: FeedForwardActivation
  /** Factor of embeddings. */
  readonly embeddingScale: number
  /** Factor of what attention and feed-forward network add. */
  readonly residualScale: number
  /** Factor of logits. */
  readonly logitScale: number
  /** c of c · tanh(logit / c); 0: logits are not limited. */
  readonly logitSoftcap: number
}

/** Several matrices as one tensor. */
export interface MatrixStack {
  /** [matrices, out features, in features]. */
  readonly weight: Constant
  /** What the products of each matrix are multiplied with, [matrices]; undefined: 1. */
  readonly factors: Constant | undefined
}

/** The weights of a model file by name. */
export interface WeightSource {
  /** All names. */
  readonly names: readonly string[]
  /** Whether there is a tensor of that name. */
  has(name: string): boolean
  /** Sizes, the outermost first. */
  shape(name: string): readonly number[]
  /**
   * The tensor; its weight stays in the format of the file.
   * @param transposed - whether it is [in features, out features]
   */
  constant(name: string, transposed?: boolean): Constant
  /** Several matrices of one shape as one tensor. */
  stack(names: readonly string[]): MatrixStack
}
