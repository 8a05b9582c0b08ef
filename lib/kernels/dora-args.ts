// dora-args.ts: arguments of DoRA layers. Contract: native/backend/dora_args.h. Sizes: T tokens, I in features, O out
// features, R rank.
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

/** out = Σ_i W[o, i]²; see `WeightNorm2Args` in native/backend/dora_args.h. */
export interface WeightNorm2Args {
  /** [O, I] */
  weight: Weight
  /** Output, [O]. */
  out: Float32Array
}

/** norm = ‖V‖ by rows, gain = magnitude / norm; see `DoraNormArgs` in native/backend/dora_args.h. */
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

/** y = gain ∘ (x · Vᵀ) + bias; see `DoraForwardArgs` in native/backend/dora_args.h. */
export interface DoraForwardArgs extends LowRank {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Float32Array
  /** [O] */
  gain: Float32Array
  /** [O]; absent: 0. */
  bias?: Float32Array | undefined
  /** [T, I], 0 or 1/(1 − p); absent: no dropout. */
  mask?: Float32Array | undefined
  /** Output for the backward pass, [T, R]. */
  xa: Float32Array
  /** Output for the backward pass, [T, O]: x · Vᵀ; absent: not computed. */
  z?: Float32Array | undefined
  /** Output, [T, O]. */
  y: Float32Array
  /** nvfp4 takes no mask. Default: f32. */
  compute?: Compute | undefined
}

/** One of the adapters of a mixed batch. */
export interface MixedAdapter extends LowRank {
  /** [O] */
  readonly gain: Float32Array
}

/** doraForward for rows of different adapters; see `DoraMixedArgs` in native/backend/dora_args.h. */
export interface DoraMixedArgs {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Float32Array
  /** At most 64. */
  adapters: readonly MixedAdapter[]
  /** [T], the adapter of each row, -1 for none. */
  index: Int32Array
  /** [O]; absent: 0. */
  bias?: Float32Array | undefined
  /** Output, [T, O]. */
  y: Float32Array
}

/** Gradients of {@link DoraForwardArgs}; see `DoraBackwardArgs` in native/backend/dora_args.h. */
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
  /** Output, [T, I]; absent: not computed. */
  dx?: Float32Array | undefined
  /** Output, [R, I]. */
  da: Float32Array
  /** Output, [O, R]. */
  db: Float32Array
  /** Output, [O]. */
  dmagnitude: Float32Array
  /** Output, [O]; absent: not computed. */
  dbias?: Float32Array | undefined
  /** Of the products with dy, x and W. Default: f32. */
  compute?: FloatCompute | undefined
}

/** merged = gain ∘ V; see `DoraMergeArgs` in native/backend/dora_args.h. */
export interface DoraMergeArgs extends LowRank {
  /** [O, I] */
  weight: Weight
  /** [O] */
  gain: Float32Array
  /** Output, [O, I]. */
  merged: Float32Array
}

/** Gradients of {@link DoraMergeArgs}; see `DoraMergeBackwardArgs` in native/backend/dora_args.h. */
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

/** restored = merged / gain − scale · B·A; see `DoraUnmergeArgs` in native/backend/dora_args.h. */
export interface DoraUnmergeArgs extends LowRank {
  /** O */
  rows: number
  /** I */
  cols: number
  /** [O, I] */
  merged: Float32Array
  /** [O], without 0. */
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
