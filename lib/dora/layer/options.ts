// options.ts: what the methods of DoRALinear take and give.
import type { BackendName, Precision } from '../../core/config.js'
import type { GpuSelector } from '../../hardware/cuda-device.js'
import type { Tensor } from '../../memory/tensor.js'
import type { WeightMatrix } from '../../weights/encode.js'

/** A plain linear layer, y = x · weightᵀ + bias. */
export interface LinearLayer {
  /** [out, in] */
  weight: WeightMatrix
  /** [out] */
  bias?: Tensor | undefined
}

/** How the norm of W + scale · B·A enters the gradients of A and B: not at all (as in the DoRA paper and PEFT), or exactly. */
export type NormGradient = 'detached' | 'exact'

/** Options that do not change what a layer computes, for {@link DoRALinear.fromLinear} and {@link DoRALinear.load}. */
export interface LayerOptions {
  /** Name of the first adapter. Default: 'default'. */
  name?: string
  /** Default: 'detached'. */
  normGradient?: NormGradient
  /** How the frozen weight is stored. Default: DGX_SPARK_PRECISION, or as it is given. */
  precision?: Precision
  /** Engine. Default: DGX_SPARK_BACKEND, or 'auto'. */
  backend?: BackendName
  /** Which GPU. Default: the best one. */
  device?: GpuSelector
  /** Seed of A's initial values and of dropout. Give every layer its own. Default: 0. */
  seed?: number
}

/** Options of {@link DoRALinear.addAdapter}. */
export interface LayerAdapterOptions {
  /** Seed of A's initial values and of dropout. Default: 0. */
  seed?: number
  /** Rows of A and columns of B. Default: 16. */
  rank?: number
  /** The low-rank part is multiplied by alpha / rank. Default: 16. */
  alpha?: number
  /** Multiply by alpha / √rank instead (rank-stabilised LoRA). Default: false. */
  rslora?: boolean
  /** Probability that an input of the adapter is dropped in training; the frozen path drops nothing. Default: 0. */
  dropout?: number
  /** Starting values instead of the usual ones. They are copied. */
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
  /** Seed of A's initial values and of dropout. Give every layer its own. Default: 0. */
  seed?: number
}

/** Options of {@link DoRALinear.forward}. */
export interface ForwardOptions {
  /** Keep what {@link DoRALinear.backward} needs, and drop out. Default: {@link DoRALinear.training}. */
  training?: boolean
  /**
   * Through which adapter each row of x goes, null: through none; at most 64 different ones, not in training. Row t is
   * what a pass of all rows through that adapter gives (on the CPU bit for bit), and the frozen weight is read as for
   * one adapter. Default: {@link DoRALinear.activeAdapter} for all.
   */
  adapters?: readonly (string | null)[]
  /**
   * A dropout mask [..., in] with the factor 1/(1 − p) in it, instead of a random one.
   * @internal
   */
  mask?: Tensor
}

/** Gradients of a loss. */
export interface DoRAGradients {
  /** [..., in], in the dtype of the layer's input; absent when it was not wanted. */
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
  /** How the merged weight is stored. Default: as the frozen one. */
  precision?: Precision
  /**
   * Keep the frozen weight, so that {@link DoRALinear.unmerge} restores it bit for bit. false frees it; unmerging then
   * divides by the gain, which rounds, and fails where the gain is 0. Default: true.
   */
  keepOriginal?: boolean
}

/** A trainable array of a layer. An optimizer writes into `data`; the next forward pass sees it. */
export interface Parameter {
  /** Which one. */
  readonly name: 'lora_A' | 'lora_B' | 'magnitude'
  /** [rank, in], [out, rank] or [out]. */
  readonly shape: readonly number[]
  /** The elements, row-major. */
  readonly data: Float32Array
  /** The gradient of the last backward pass. */
  grad?: Float32Array
}
