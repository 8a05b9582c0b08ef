// network-args.ts: arguments of softmax, normalizations, attention, loss and optimizer step. Contract:
// native/backend/network_args.h. Sizes: B and N batch, C channels, P positions, T queries, S keys.
import type { ActivationDType, Activations } from './linear-args.js'
import type { FloatCompute } from './weight-args.js'

/** y = softmax(x) or log(softmax(x)), by rows; see `SoftmaxArgs` in native/backend/network_args.h. */
export interface SoftmaxArgs {
  /** Number of rows. */
  rows: number
  /** At least 1. */
  cols: number
  /** Whether the logarithm is wanted. */
  log?: boolean | undefined
  /** [rows, cols] */
  x: Float32Array
  /** Output, [rows, cols]; may be `x`. */
  y: Float32Array
}

/** The gradient of {@link SoftmaxArgs}; see `SoftmaxBackwardArgs` in native/backend/network_args.h. */
export interface SoftmaxBackwardArgs {
  /** Number of rows. */
  rows: number
  /** At least 1. */
  cols: number
  /** That of the forward pass. */
  log?: boolean | undefined
  /** [rows, cols], from the forward pass. */
  y: Float32Array
  /** [rows, cols] */
  dy: Float32Array
  /** Output, [rows, cols]; may be `dy`. */
  dx: Float32Array
}

/** Rows of a normalization and the elements that share a scale; see `NormArgs` in native/backend/network_args.h. */
export interface NormShape {
  /** A multiple of groups. */
  rows: number
  /** At least 1, a multiple of inner. */
  cols: number
  /** 1 for layer and RMS normalization. */
  groups: number
  /** 1 for layer and RMS normalization, positions of an image for group and instance normalization. */
  inner: number
  /** Whether the mean is taken away; not so in RMS normalization. */
  centered: boolean
}

/** y = (x − mean) / √(variance + eps) · scale + bias, by rows; see `NormArgs` in native/backend/network_args.h. */
export interface NormArgs extends NormShape {
  /** Added to the variance. */
  eps: number
  /** [rows, cols] */
  x: Float32Array
  /** [groups · cols / inner]; absent: 1. */
  scale?: Float32Array | undefined
  /** As `scale`; absent: 0. */
  bias?: Float32Array | undefined
  /** Output, [rows, cols]; may be `x` where it is f32, and absent beside `yRounded`. */
  y?: Activations | undefined
  /** Of `y`. Default: f32. */
  yDtype?: ActivationDType | undefined
  /** Output on CUDA, [rows, cols]: y of f32 as rows for products in nvfp4 (`roundedUnit`), where groups and inner are 1. */
  yRounded?: Uint16Array | undefined
  /** Tensor scale of `yRounded`, a power of two. Absent: each row has one of its own. */
  yScale?: number | undefined
  /** Output on CUDA, [rows, cols]: y of f32 in `halfDtype` as well. */
  yHalf?: Uint16Array | undefined
  /** Of `yHalf`. */
  halfDtype?: Exclude<ActivationDType, 'f32'> | undefined
  /** Output for the backward pass, [rows]; absent: not computed. */
  mean?: Float32Array | undefined
  /** Output for the backward pass, [rows]: 1 / √(variance + eps); absent: not computed. */
  invStd?: Float32Array | undefined
}

/** Gradients of {@link NormArgs}; see `NormBackwardArgs` in native/backend/network_args.h. */
export interface NormBackwardArgs extends NormShape {
  /** [rows, cols] */
  x: Float32Array
  /** [groups · cols / inner]; absent: 1. */
  scale?: Float32Array | undefined
  /** [rows], from the forward pass; only when `centered`. */
  mean?: Float32Array | undefined
  /** [rows], from the forward pass. */
  invStd: Float32Array
  /** [rows, cols] */
  dy: Float32Array
  /** Output, [rows, cols]; absent: not computed. */
  dx?: Float32Array | undefined
  /** Output, as `scale`; absent: not computed. */
  dscale?: Float32Array | undefined
  /** Output, as `scale`; absent: not computed. */
  dbias?: Float32Array | undefined
}

/** Sizes of an activation [N, C, P]. */
export interface BatchShape {
  /** N */
  batch: number
  /** C */
  channels: number
  /** P */
  positions: number
}

/** Mean and variance of each channel; see `BatchStatisticsArgs` in native/backend/network_args.h. */
export interface BatchStatisticsArgs extends BatchShape {
  /** [N, C, P], not empty. */
  x: Float32Array
  /** Output, [C]. */
  mean: Float32Array
  /** Output, [C]: Σ (x − mean)² / (N · P). */
  variance: Float32Array
}

/** Batch normalization with given mean and variance; see `BatchNormArgs` in native/backend/network_args.h. */
export interface BatchNormArgs extends BatchShape {
  /** Added to the variance. */
  eps: number
  /** [N, C, P] */
  x: Float32Array
  /** [C] */
  mean: Float32Array
  /** [C] */
  variance: Float32Array
  /** [C]; absent: 1. */
  scale?: Float32Array | undefined
  /** [C]; absent: 0. */
  bias?: Float32Array | undefined
  /** Output, [N, C, P]; may be `x`. */
  y: Float32Array
}

/** Gradients of {@link BatchNormArgs}; see `BatchNormBackwardArgs` in native/backend/network_args.h. */
export interface BatchNormBackwardArgs extends BatchShape {
  /** Whether mean and variance are those of x, so that its gradient goes through them. */
  training: boolean
  /** Added to the variance. */
  eps: number
  /** [N, C, P] */
  x: Float32Array
  /** [C] */
  mean: Float32Array
  /** [C] */
  variance: Float32Array
  /** [C]; absent: 1. */
  scale?: Float32Array | undefined
  /** [N, C, P] */
  dy: Float32Array
  /** Output, [N, C, P]; absent: not computed. */
  dx?: Float32Array | undefined
  /** Output, [C]; absent: not computed. */
  dscale?: Float32Array | undefined
  /** Output, [C]; absent: not computed. */
  dbias?: Float32Array | undefined
}

/** Elements between two batches, two heads and two rows; the elements of a row are adjacent. */
export type HeadStrides = readonly [batch: number, head: number, row: number]

/** What attention reads. Head h of the queries meets head ⌊h · kvHeads / heads⌋ of the keys. */
export interface AttentionInputs {
  /** B */
  batch: number
  /** H, a multiple of `kvHeads`. */
  heads: number
  /** Heads of keys and values. */
  kvHeads: number
  /** T */
  queries: number
  /** S */
  keys: number
  /** Length of a query and of a key. */
  depth: number
  /** Length of a value. */
  valueDepth: number
  /** Factor of the products. */
  scale: number
  /** Scores become softcap · tanh(score / softcap); 0 or absent: they stay. */
  softcap?: number | undefined
  /** Whether query t sees the keys s <= t + causalOffset only. */
  causal?: boolean | undefined
  /** Keys that lie before the first query, such as those of a cache. */
  causalOffset?: number | undefined
  /** Rows of `depth`. */
  q: Float32Array
  /** Rows of `depth`. */
  k: Float32Array
  /** Rows of `valueDepth`. */
  v: Float32Array
  /** Rows of S, added to the scores; −Infinity hides a key. Absent: 0. */
  mask?: Float32Array | undefined
  /** Of `q`. */
  qStrides: HeadStrides
  /** Of `k`. */
  kStrides: HeadStrides
  /** Of `v`. */
  vStrides: HeadStrides
  /** Of `mask`; 0 repeats it. */
  maskStrides?: HeadStrides | undefined
  /** Of `y`. */
  yStrides: HeadStrides
  /** A GPU rounds its operands to bf16 or f16; other backends compute in f32. Default: f32. */
  compute?: FloatCompute | undefined
}

/** y = softmax(scale · q·kᵀ + mask) · v for each head; see `AttentionArgs` in native/backend/network_args.h. */
export interface AttentionArgs extends AttentionInputs {
  /** Output, rows of `valueDepth`; in 16 bits without gaps between them. */
  y: Activations
  /** Of `y`. Default: f32. */
  yDtype?: ActivationDType | undefined
  /** Output for the backward pass, [B, H, T]: log Σ e^score; absent: not computed. */
  logSum?: Float32Array | undefined
}

/** Gradients of {@link AttentionArgs}; see `AttentionBackwardArgs` in native/backend/network_args.h. */
export interface AttentionBackwardArgs extends AttentionInputs {
  /** From the forward pass. */
  y: Float32Array
  /** From the forward pass. */
  logSum: Float32Array
  /** As `y`. */
  dy: Float32Array
  /** Output; absent: not computed. */
  dq?: Float32Array | undefined
  /** Output; absent: not computed. */
  dk?: Float32Array | undefined
  /** Output; absent: not computed. */
  dv?: Float32Array | undefined
}

/** Rotary embedding: pairs of elements of each head are rotated; see `RotaryArgs` in native/backend/network_args.h. */
export interface RotaryArgs {
  /** B. */
  batch: number
  /** T. */
  tokens: number
  /** H. */
  heads: number
  /** D, elements of a head. */
  depth: number
  /** Elements that are rotated, the first ones: even, at most depth. */
  rotary: number
  /** Pairs are neighbours, not `rotary / 2` apart. */
  interleaved?: boolean | undefined
  /** x and y are [B, H, T, D]. */
  headsFirst?: boolean | undefined
  /** [B, T, H, D] */
  x: Float32Array
  /** Cosines of the angles, [B, T, rotary / 2]. */
  cos: Float32Array
  /** Sines, as `cos`. */
  sin: Float32Array
  /** Output, as `x`; not `x`. */
  y: Float32Array
}

/** Mean of −log softmax(logits)[label]; see `SoftmaxCrossEntropyArgs` in native/backend/network_args.h. */
export interface SoftmaxCrossEntropyArgs {
  /** T, at least 1. */
  tokens: number
  /** C */
  classes: number
  /** [T, C] */
  logits: Float32Array
  /** [T], each in 0 … C − 1. */
  labels: Int32Array
  /** Output, [1]. */
  loss: Float32Array
  /** Output, [T, C]; absent: not computed. */
  dlogits?: Float32Array | undefined
}

/** A tensor that AdamW trains. */
export interface AdamwTensor {
  /** Number of elements. */
  count: number
  /** Gradient. */
  grad: Float32Array
  /** Updated. */
  param: Float32Array
  /** First moment, updated. */
  m: Float32Array
  /** Second moment, updated. */
  v: Float32Array
}

/** The most tensors of a step of AdamW. */
export const maxAdamwTensors = 64

/** One step of AdamW, in place; see `AdamwArgs` in native/backend/network_args.h. */
export interface AdamwArgs {
  /** Counts from 1. An array of one number is read at each run of a plan. */
  step: number | Float64Array
  /** Learning rate, as `step`. */
  lr: number | Float64Array
  /** Decay of the first moment. */
  beta1: number
  /** Decay of the second moment. */
  beta2: number
  /** Added to the root of the second moment. */
  eps: number
  /** Decoupled: param −= lr · weightDecay · param. */
  weightDecay: number
  /** At most 64, none of which overlaps another. */
  tensors: readonly AdamwTensor[]
}

/** Arguments of what lies between the layers of a network, and of its training. */
export interface NetworkKernelArgs {
  /** Softmax of rows. */
  softmax: SoftmaxArgs
  /** Its gradient. */
  softmaxBackward: SoftmaxBackwardArgs
  /** Layer, RMS, group and instance normalization. */
  norm: NormArgs
  /** Its gradients. */
  normBackward: NormBackwardArgs
  /** What batch normalization learns from a batch. */
  batchStatistics: BatchStatisticsArgs
  /** Batch normalization. */
  batchNorm: BatchNormArgs
  /** Its gradients. */
  batchNormBackward: BatchNormBackwardArgs
  /** Attention of several heads. */
  attention: AttentionArgs
  /** Its gradients. */
  attentionBackward: AttentionBackwardArgs
  /** Rotary embedding of queries or keys. */
  rotary: RotaryArgs
  /** A classifier's loss. */
  softmaxCrossEntropy: SoftmaxCrossEntropyArgs
  /** An optimizer step. */
  adamw: AdamwArgs
}
