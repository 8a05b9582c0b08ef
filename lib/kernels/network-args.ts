// network-args.ts: what the operations between the layers of a network take. native/backend/backend.h is the contract
// (formulas, aliasing); field names are the same. Sizes: B and N batch, C channels, P positions, T queries, S keys.
import type { FloatCompute } from './weight-args.js'

/** y = softmax(x) or log(softmax(x)), by rows. */
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

/** dx = y ∘ (dy − Σ dy ∘ y), or with `log` dy − e^y · Σ dy, by rows. */
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

/** How the rows of a normalization lie, and which elements share a scale: ⌊((row mod groups) · cols + col) / inner⌋. */
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

/** y = (x − mean) / √(variance + eps) · scale + bias, by rows. */
export interface NormArgs extends NormShape {
  /** Added to the variance. */
  eps: number
  /** [rows, cols] */
  x: Float32Array
  /** [groups · cols / inner] */
  scale?: Float32Array | undefined
  /** As `scale`. */
  bias?: Float32Array | undefined
  /** Output, [rows, cols]; may be `x`. */
  y: Float32Array
  /** Output for the backward pass, [rows]. */
  mean?: Float32Array | undefined
  /** Output for the backward pass, [rows]: 1 / √(variance + eps). */
  invStd?: Float32Array | undefined
}

/** The gradients of {@link NormArgs}. */
export interface NormBackwardArgs extends NormShape {
  /** [rows, cols] */
  x: Float32Array
  /** [groups · cols / inner] */
  scale?: Float32Array | undefined
  /** [rows], from the forward pass; only when `centered`. */
  mean?: Float32Array | undefined
  /** [rows], from the forward pass. */
  invStd: Float32Array
  /** [rows, cols] */
  dy: Float32Array
  /** Output, [rows, cols]; left out: not computed. */
  dx?: Float32Array | undefined
  /** Output, as `scale`; left out: not computed. */
  dscale?: Float32Array | undefined
  /** Output, as `scale`; left out: not computed. */
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

/** Mean and variance of each channel. */
export interface BatchStatisticsArgs extends BatchShape {
  /** [N, C, P], not empty. */
  x: Float32Array
  /** Output, [C]. */
  mean: Float32Array
  /** Output, [C]: Σ (x − mean)² / (N · P). */
  variance: Float32Array
}

/** y = (x − mean) / √(variance + eps) · scale + bias, by channels. */
export interface BatchNormArgs extends BatchShape {
  /** Added to the variance. */
  eps: number
  /** [N, C, P] */
  x: Float32Array
  /** [C] */
  mean: Float32Array
  /** [C] */
  variance: Float32Array
  /** [C] */
  scale?: Float32Array | undefined
  /** [C] */
  bias?: Float32Array | undefined
  /** Output, [N, C, P]; may be `x`. */
  y: Float32Array
}

/** The gradients of {@link BatchNormArgs}. */
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
  /** [C] */
  scale?: Float32Array | undefined
  /** [N, C, P] */
  dy: Float32Array
  /** Output, [N, C, P]; left out: not computed. */
  dx?: Float32Array | undefined
  /** Output, [C]; left out: not computed. */
  dscale?: Float32Array | undefined
  /** Output, [C]; left out: not computed. */
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
  /** w becomes softcap · tanh(w / softcap); 0 or absent: it stays. */
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
  /** Added to the products: rows of S; −Infinity hides a key. */
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
}

/** y = softmax(scale · q·kᵀ + mask) · v for each head; 0 where nothing is visible. */
export interface AttentionArgs extends AttentionInputs {
  /** Output, rows of `valueDepth`. */
  y: Float32Array
  /** Output for the backward pass, [B, H, T]: log Σ e^w. */
  logSum?: Float32Array | undefined
  /**
   * bf16, f16: a GPU rounds q, k, v and the weights of v so, for its tensor cores, where their rows have up to 128 numbers;
   * other backends compute in f32. Default: f32.
   */
  compute?: FloatCompute | undefined
}

/** The gradients of {@link AttentionArgs}; those of q, k and v lie as these do. */
export interface AttentionBackwardArgs extends AttentionInputs {
  /** From the forward pass. */
  y: Float32Array
  /** From the forward pass. */
  logSum: Float32Array
  /** As `y`. */
  dy: Float32Array
  /** Output; left out: not computed. */
  dq?: Float32Array | undefined
  /** Output; left out: not computed. */
  dk?: Float32Array | undefined
  /** Output; left out: not computed. */
  dv?: Float32Array | undefined
}

/** loss = mean of −log softmax(logits)[label], dlogits = (softmax − onehot) / T */
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
  /** Output, [T, C]; left out: not computed. */
  dlogits?: Float32Array | undefined
}

/** Arguments of each operation by its name. */
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
  /** A classifier's loss. */
  softmaxCrossEntropy: SoftmaxCrossEntropyArgs
}
