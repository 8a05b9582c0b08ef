// sampler-row.ts: what native sampling reads and writes for one row of logits.

/** How a row of logits is sampled, and what comes of it; see native/core/token_sampler.h. */
export interface SamplerRow {
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  readonly minP: number
  readonly typicalP: number
  readonly repetitionPenalty: number
  readonly presencePenalty: number
  readonly frequencyPenalty: number
  /** In [0, 1): what decides. */
  readonly uniform: number
  /** Distinct tokens of the prompt and of the text, the first `seenCount`. */
  readonly seen: Int32Array
  readonly seenCount: number
  /** Distinct tokens of the text, the first `countedCount`, and how often each is there. */
  readonly counted: Int32Array
  readonly counts: Int32Array
  readonly countedCount: number
  readonly biased: Int32Array
  readonly biases: Float64Array
  readonly biasedCount: number
  /** Output, one element: the token, or -1 for logits that none can be chosen from. */
  readonly id: Int32Array
  /** Output, one element: its log probability. Absent: not computed, nor `top`. */
  readonly logprob?: Float64Array | undefined
  /** Outputs, [topCount]: the likeliest tokens, -1 where there are no more, and their log probabilities. */
  readonly top?: Int32Array | undefined
  readonly topLogprobs?: Float64Array | undefined
  readonly topCount?: number | undefined
}
