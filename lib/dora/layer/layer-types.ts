// layer-types.ts: options, inputs and results of DoRALinear.
import type { BackendName, Precision } from '../../core/config.js'
import type { GpuSelector } from '../../hardware/cuda-device.js'
import type { Tensor } from '../../memory/tensor.js'
import type { Weight } from '../../weights/weight.js'

/** A plain linear layer, y = x · weightᵀ + bias. */
export interface LinearLayer {
  /** [out, in] */
  weight: Tensor | Weight
  /** [out] */
  bias?: Tensor | undefined
}

/** Whether the gradients of A and B treat the norm of W + scale · B·A as a constant (the DoRA paper, PEFT) or differentiate it. */
export type NormGradient = 'detached' | 'exact'

/** Options common to {@link DoRALinear.fromLinear} and {@link DoRALinear.load}, apart from those of the adapter itself. */
export interface LayerOptions {
  /** Name of the first adapter. Default: 'default'. */
  name?: string
  /** Whether gradients include that of the norm. Default: 'detached'. */
  normGradient?: NormGradient
  /** Storage format of the frozen weight. Default: DGX_SPARK_PRECISION, or the format it is given in. */
  precision?: Precision
  /**
   * What the rows of x are rounded to before an inference pass multiplies them by the weight: `nvfp4`, for a weight of NVFP4, is for FP4
   * tensor cores. The path of the adapter and training passes round nothing. Default: f32, nothing is rounded.
   */
  activations?: 'f32' | 'nvfp4'
  /** Default: DGX_SPARK_BACKEND, or 'auto'. */
  backend?: BackendName
  /** The GPU to use. Default: the best one. */
  device?: GpuSelector
  /** Seed of A's initial values and of dropout; use a different one for every layer. Default: 0. */
  seed?: number
}

/** Options of {@link DoRALinear.addAdapter}. */
export interface LayerAdapterOptions {
  /** Seed of A's initial values and of dropout. Default: 0. */
  seed?: number
  /** Rows of A and columns of B. Default: 16. */
  rank?: number
  /** B·A is multiplied by alpha / rank. Default: 16. */
  alpha?: number
  /** Multiply B·A by alpha / √rank instead (rank-stabilised LoRA). Default: false. */
  rslora?: boolean
  /** Dropout probability of the adapter's input in training; the frozen path has no dropout. Default: 0. */
  dropout?: number
  /** Initial values; they are copied. */
  initial?: {
    /** [rank, in]. Default: uniform in ±1/√in, from `seed`. */
    a?: Tensor
    /** [out, rank]. Default: zero. */
    b?: Tensor
    /** [out]. Default: the row norms of weight + scale · B·A. */
    magnitude?: Tensor
  }
}

/** Options of {@link DoRALinear.fromLinear}. */
export interface DoRALinearOptions extends LayerOptions, LayerAdapterOptions {
  /** Seed of A's initial values and of dropout; use a different one for every layer. Default: 0. */
  seed?: number
}

/** Options of {@link DoRALinear.forward}. */
export interface ForwardOptions {
  /** Apply dropout and keep the activations for {@link DoRALinear.backward}. Default: {@link DoRALinear.training}. */
  training?: boolean
  /**
   * The adapter of each row of x, null for none; at most 64 different ones, and not in training. Row t equals that row of
   * a pass of all rows through its adapter (bit for bit on the CPU); the frozen weight is read only once. Default:
   * {@link DoRALinear.activeAdapter} for all rows.
   */
  adapters?: readonly (string | null)[]
  /**
   * A dropout mask [..., in] that includes the factor 1/(1 − p), instead of a random one.
   * @internal
   */
  mask?: Tensor
}

/** Gradients of a loss. */
export interface DoRAGradients {
  /** [..., in], in the dtype of the layer's input; absent with `input: false`. */
  x?: Tensor
  /** [rank, in] */
  a: Tensor<'f32'>
  /** [out, rank] */
  b: Tensor<'f32'>
  /** [out] */
  magnitude: Tensor<'f32'>
  /** [out]; absent when the layer has no bias. */
  bias?: Tensor<'f32'>
}

/** Options of {@link DoRALinear.merge}. */
export interface MergeOptions {
  /** Refuse a merged weight that is not finite. Default: true. */
  safe?: boolean
  /** Storage format of the merged weight. Default: that of the frozen one. */
  precision?: Precision
  /**
   * Keep the frozen weight, so that {@link DoRALinear.unmerge} restores it bit for bit. With false it is freed; unmerging
   * then divides by the gain, which rounds, and fails if a gain is 0. Default: true.
   */
  keepOriginal?: boolean
}

/** A trainable array of a layer. An optimizer writes into `data`; the next forward pass sees it. */
export interface Parameter {
  /** As in PEFT's files. */
  readonly name: 'lora_A' | 'lora_B' | 'magnitude'
  /** [rank, in], [out, rank] or [out] */
  readonly shape: readonly number[]
  /** Row-major. */
  readonly data: Float32Array
  /** The gradient of the last backward pass. */
  grad?: Float32Array
}
