// text-options.ts: options and results of language models.
import type { ActivationType } from '../core/activation-types.js'
import type { PullProgress } from '../hub/pull-options.js'
import type { EngineOptions } from '../model/engine.js'
import type { CacheType } from './architectures/cache-types.js'
import type { ChatMessage, ChatOptions } from './chat-options.js'
import type { TokenLogprob } from './sampler.js'
import type { SamplingOptions } from './sampling-options.js'

/** Options of {@link TextModel.load}. */
export interface TextModelOptions extends Omit<EngineOptions, 'provider'> {
  /** Tokens of a sequence at most. Default: what the model was made for. */
  contextLength?: number
  /**
   * Tokens of all sequences together whose keys and values are kept. Default: as many as the context has, but at most 16,384, and no
   * more than a quarter of the memory that is available.
   */
  cacheTokens?: number
  /**
   * What keys and values are rounded to: `f16` and `bf16` take half the memory of f32, `f8_e4m3` a quarter. `i8` takes little more than
   * a quarter, with a scale for each token and head, and is more accurate. Default: f32, nothing is rounded.
   */
  cacheType?: CacheType
  /** Sequences that are worked on at the same time; further ones wait. Default: 64. */
  maxSequences?: number
  /**
   * Tokens of a batch. Decoders: longer prompts are computed in chunks; default 512. Encoders: of several texts with their padding, a
   * longer text is a batch of its own; default 4096.
   */
  batchTokens?: number
  /**
   * What rows are rounded to before they are multiplied by weights. `int8`, for weights in blocks of 4 to 8 bits, has a scale for each 32
   * elements, as in llama.cpp; `bf16` is for weights of bf16, and for CPUs with instructions for it. Both make prompts faster and are less
   * accurate, on the CPU alone. `nvfp4`, for weights of NVFP4, has a scale for each 16 elements and is for FP4 tensor cores; where a file
   * has the scale that activations of a layer were calibrated for, that is taken, else each row has its own. Where weights have other
   * formats nothing is rounded. Default: f32, nothing is rounded.
   */
  activations?: ActivationType
  /** Bytes that weights and cache may take together. Default: what is available. */
  memoryLimit?: number
  /** Chat template in place of that of the model. */
  chatTemplate?: string
  /** Of a name such as `hf:owner/name`: only what is on this disk, without a request. Default: false. */
  offline?: boolean
  /** Is told about the progress of a download. */
  onProgress?: (progress: PullProgress) => void
  /** Ends loading; its promise rejects with the reason of the signal. */
  signal?: AbortSignal
}

/** What a text is generated from: a text, a conversation, or token ids. */
export type TextInput = string | readonly ChatMessage[] | Int32Array

/** Options of {@link TextModel.generate}; `temperature` and the like default to what the files of the model say. */
export interface GenerationOptions extends Omit<SamplingOptions, 'prompt'> {
  /** Tokens of the text at most. Default: as many as context and cache have room for. */
  maxTokens?: number
  /** Texts that end the text; they are not part of it. */
  stop?: string | readonly string[]
  /** Tokens that end the text, besides those of the model. */
  stopIds?: readonly number[]
  /** Goes on behind tokens that end a text, until `maxTokens`. Default false. */
  ignoreEnd?: boolean
  /** Leaves control tokens out of the text. Default true. */
  skipSpecialTokens?: boolean
  /** Of the chat template: `tools`, `documents`, `variables`, `continueFinalMessage`, `now`. */
  chat?: Omit<ChatOptions, 'specialTokens'>
  /** Ends the generation, whose iteration throws the reason of the signal. */
  signal?: AbortSignal
}

/** A token of a generated text. */
export interface GeneratedToken {
  /** Index in the vocabulary. */
  readonly id: number
  /** Text that can be shown since the token before; '' in the middle of a character, or of what may become a stop text. */
  readonly text: string
  /** Natural log of the probability that the model gives the token; with `logprobs`. */
  readonly logprob?: number
  /** The most likely tokens; with `logprobs`. */
  readonly top?: readonly TokenLogprob[]
}

/** Why a text ended: a token that ends it, a stop text, or `maxTokens`. */
export type FinishReason = 'end' | 'stop' | 'length'

/** A generated text. */
export interface GeneratedText {
  /** What was generated, without the stop text. */
  readonly text: string
  /** Its tokens, one that ended it included. */
  readonly ids: readonly number[]
  /** Why it ended. */
  readonly finishReason: FinishReason
  /** The stop text that was found. */
  readonly stop?: string
  /** Tokens of the prompt. */
  readonly promptTokens: number
  /** Tokens of those whose keys and values were there already. */
  readonly cachedTokens: number
  /** Natural log probabilities of the tokens; with `logprobs`. */
  readonly logprobs?: readonly number[]
}

/** Natural log probabilities of the tokens of a text. */
export interface TextProbabilities {
  /** All tokens. */
  readonly ids: readonly number[]
  /** log p(token | tokens before), one less than `ids`: the first token has none. */
  readonly logprobs: Float64Array
}

/** A text that a vector is wanted of, or its token ids, control tokens included. */
export type EmbedInput = string | Int32Array

/** Options of {@link TextModel.embed}. Defaults are what the files of the model say, as sentence-transformers writes it. */
export interface EmbedOptions {
  /**
   * What stands for a text: the mean of the states of its tokens, or the state of the first one (`cls`, of encoders only) or the last
   * one. Where the files do not say: mean for encoders, last for decoders.
   */
  pooling?: 'mean' | 'cls' | 'last'
  /** Divides by the Euclidean norm. Where the files do not say: true. */
  normalize?: boolean
  /** Text that is put in front of each text; '' for none. */
  prompt?: string
  /** Name of one of the prompts of the model, such as `query`. */
  promptName?: string
  /** Tokens that each text is cut to, those around it included. At most the context of the model. */
  maxLength?: number
  /** Elements of a vector: the first ones, for models that were trained for it. Default: all. */
  dimensions?: number
  /** Ends the work. */
  signal?: AbortSignal
}
