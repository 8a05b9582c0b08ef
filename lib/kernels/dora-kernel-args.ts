// dora-kernel-args.ts: what the operations of DoRA layers take. T tokens, I in features, O out features, R rank.
import type { Compute, FloatCompute, Weight } from './weight-args.js'

/** The low-rank part of a DoRA layer, V = W + scale · B·A. */
export interface LowRank {
  /** R: rows of A, columns of B. */
  readonly rank: number
  /** Factor of B·A. */
  readonly scale: number
  /** [R, I] */
  readonly a: Float32Array
  /** [O, R] */
  readonly b: Float32Array
}

/** out = Σ_i W[o, i]² */
export interface WeightNorm2Args {
  /** [O, I] */
  weight: Weight
  /** Output, [O]. */
  out: Float32Array
}

/** norm = ‖V‖ by rows, gain = magnitude / max(norm, 1e-12) */
export interface DoraNormArgs extends LowRank {
  /** [O, I] */
  weight: Weight
  /** [O], of `weight`. */
  weightNorm2: Float32Array
  /** [O] */
  magnitude: Float32Array
  /** Output, [O]. */
  norm: Float32Array
  /** Output, [O]. */
  gain: Float32Array
}

/** y = gain ∘ (x·Vᵀ) + bias; with a mask the adapter path sees mask ∘ x and the frozen path x. */
export interface DoraForwardArgs extends LowRank {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Float32Array
  /** [O] */
  gain: Float32Array
  /** [O] */
  bias?: Float32Array | undefined
  /** Dropout, [T, I]: 0 or 1/(1 − p). */
  mask?: Float32Array | undefined
  /** Output for the backward pass, [T, R]. */
  xa: Float32Array
  /** Output for the backward pass, [T, O]: the product before the gain. */
  z?: Float32Array | undefined
  /** Output, [T, O]. */
  y: Float32Array
  /** Of all products; nvfp4, of x · Wᵀ alone while the others are bf16, has no dropout. Default: f32. */
  compute?: Compute | undefined
}

/** One of the adapters of a mixed batch. */
export interface MixedAdapter extends LowRank {
  /** [O] */
  readonly gain: Float32Array
}

/** doraForward without a mask for rows that go through different adapters, linear for those with index -1. */
export interface DoraMixedArgs {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Float32Array
  /** At most 64. */
  adapters: readonly MixedAdapter[]
  /** Which adapter each row takes, -1 for none: [T]. */
  index: Int32Array
  /** [O] */
  bias?: Float32Array | undefined
  /** Output, [T, O]. */
  y: Float32Array
}

/** The gradients of {@link DoraForwardArgs}. */
export interface DoraBackwardArgs extends LowRank {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** Whether the norm is differentiated, too. */
  exactNorm: boolean
  /** [T, I] */
  x: Float32Array
  /** [T, I], that of the forward pass. */
  mask?: Float32Array | undefined
  /** [T, O] */
  dy: Float32Array
  /** [T, R], from the forward pass. */
  xa: Float32Array
  /** [T, O], from the forward pass. */
  z: Float32Array
  /** [O] */
  norm: Float32Array
  /** [O] */
  gain: Float32Array
  /** [O] */
  magnitude: Float32Array
  /** Output, [T, I]; left out: not computed. */
  dx?: Float32Array | undefined
  /** Output, [R, I]. */
  da: Float32Array
  /** Output, [O, R]. */
  db: Float32Array
  /** Output, [O]. */
  dmagnitude: Float32Array
  /** Output, [O]; left out: not computed. */
  dbias?: Float32Array | undefined
  /** Of the products with dy, x and W: not nvfp4. Default: f32. */
  compute?: FloatCompute | undefined
}

/** merged = gain ∘ V */
export interface DoraMergeArgs extends LowRank {
  /** [O, I] */
  weight: Weight
  /** [O] */
  gain: Float32Array
  /** Output, [O, I]. */
  merged: Float32Array
}

/** The gradients of {@link DoraMergeArgs}: of A, B and magnitude. */
export interface DoraMergeBackwardArgs extends LowRank {
  /** [O, I] */
  weight: Weight
  /** Whether the norm is differentiated, too. */
  exactNorm: boolean
  /** [O, I] */
  dmerged: Float32Array
  /** [O] */
  norm: Float32Array
  /** [O] */
  gain: Float32Array
  /** Output, [O, I]: the gradient of V. */
  dv: Float32Array
  /** Output, [R, I]. */
  da: Float32Array
  /** Output, [O, R]. */
  db: Float32Array
  /** Output, [O]. */
  dmagnitude: Float32Array
}

/** restored = merged / gain − scale · B·A; no gain is 0. */
export interface DoraUnmergeArgs extends LowRank {
  /** O */
  rows: number
  /** I */
  cols: number
  /** [O, I] */
  merged: Float32Array
  /** [O] */
  gain: Float32Array
  /** Output, [O, I]; may be `merged`. */
  restored: Float32Array
}

/** Arguments of the operations of DoRA layers. */
export interface DoraKernelArgs {
  /** Squared row norms of a weight: the constant part of the DoRA norm. */
  weightNorm2: WeightNorm2Args
  /** Row norms of a DoRA layer. */
  doraNorm: DoraNormArgs
  /** A DoRA layer. */
  doraForward: DoraForwardArgs
  /** A DoRA layer whose rows go through different adapters. */
  doraMixed: DoraMixedArgs
  /** Its gradients. */
  doraBackward: DoraBackwardArgs
  /** The weight of a plain layer that computes the same. */
  doraMerge: DoraMergeArgs
  /** The gradients of that weight. */
  doraMergeBackward: DoraMergeBackwardArgs
  /** The frozen weight, from a merged one. */
  doraUnmerge: DoraUnmergeArgs
}
