// kernel-args.ts: what each operation takes. native/backend/backend.h is the contract (formulas, aliasing); field names
// are the same. Sizes: T tokens (rows of an activation), I in features, O out features, R rank;
// N batch, C channels. Matrices are row-major.
import type { PrecisionKernelArgs } from '../precision/kernel-args.js'
import type { ConvShape } from './conv-shape.js'
import type { DoraKernelArgs } from './dora-kernel-args.js'
import type { IntegerKernelArgs } from './integer-kernel-args.js'
import type { LayerKernelArgs } from './layer-kernel-args.js'
import type { NetworkKernelArgs } from './network-args.js'
import type { TensorKernelArgs } from './tensor-kernel-args.js'
import type { Compute, FloatCompute, Weight } from './weight-args.js'

export type * from './conv-shape.js'
export type * from './dora-kernel-args.js'
export type * from './integer-kernel-args.js'
export type * from './layer-kernel-args.js'
export type * from './weight-args.js'

/** What a linear layer applies to its sums: gelu by erf or, `gelu_tanh`, by tanh. */
export type Activation = 'none' | 'relu' | 'gelu' | 'gelu_tanh' | 'silu' | 'sigmoid' | 'tanh'

/** Strides in elements of a batch of matrices: outer batch, inner batch, row, column; 0 repeats a matrix. */
export type MatrixStrides = readonly [outer: number, inner: number, row: number, col: number]

/** A weight in panels of 32 rows that are interleaved along the columns; see native/backend/backend.h. */
export interface PackWeightArgs {
  /** Not packed. */
  weight: Weight
  /** Output, as long as `panelSizes` says, of the type of `weight.data`. */
  data: Weight['data']
  /** Output, nvfp4 only. */
  blockScale?: Uint8Array | undefined
}

/** The filters of a convolution of 3 x 3, G · W[o, c] · Gᵀ, for Winograd's algorithm F(4 x 4, 3 x 3). */
export interface WinogradWeightArgs {
  /** [O, C · 9] */
  weight: Weight
  /** Output, 36 packed matrices [O, C]: element p of the transform of each filter is [p, ⌊o/32⌋, c, o mod 32]. */
  data: Float32Array
}

/** y = activation(rowScale ∘ (x · Wᵀ) + bias) + residual */
export interface LinearArgs {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Float32Array
  /** [O] */
  rowScale?: Float32Array | undefined
  /** [O] */
  bias?: Float32Array | undefined
  /** [T, O]; may be `y`. */
  residual?: Float32Array | undefined
  /** Default: none. */
  activation?: Activation | undefined
  /**
   * bf16: x and W are rounded to bf16 where the machine multiplies such numbers faster. f16, for a weight of f16 or f32:
   * the same with f16, which ends at 65504. nvfp4, for a weight of nvfp4: x is rounded to NVFP4, which the tensor cores
   * of Blackwell GPUs multiply. Default: f32.
   */
  compute?: Compute | undefined
  /** Output, [T, O]. */
  y: Float32Array
}

/**
 * y[i, j] = alpha · a[i, j] · b[i, j] for a batch of matrices [m, k] and [k, n]. Of the row and column strides of a, and
 * of b, one is 1; the column stride of y is 1 and its rows do not overlap.
 */
export interface MatmulArgs {
  /** Size of the batch, first dimension. */
  outer: number
  /** Size of the batch, second dimension. */
  inner: number
  /** Rows of a and y. */
  m: number
  /** Columns of b and y. */
  n: number
  /** Columns of a, rows of b. */
  k: number
  /** Factor of the product. */
  alpha: number
  /** Left side. */
  a: Float32Array
  /** Of `a`. */
  aStrides: MatrixStrides
  /** Right side. */
  b: Float32Array
  /** Of `b`. */
  bStrides: MatrixStrides
  /** Output. */
  y: Float32Array
  /** Of `y`. */
  yStrides: MatrixStrides
  /** bf16, f16: a GPU rounds a and b so, for its tensor cores; other backends compute in f32. Default: f32. */
  compute?: FloatCompute | undefined
}

/** dx = dy · W, dweight = dyᵀ · x, dbias = Σ_t dy. Outputs that are left out are not computed. */
export interface LinearBackwardArgs {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Float32Array
  /** [T, O] */
  dy: Float32Array
  /** Output, [T, I]. */
  dx?: Float32Array | undefined
  /** Output, [O, I]. */
  dweight?: Float32Array | undefined
  /** Output, [O]. */
  dbias?: Float32Array | undefined
  /** Of dx and dweight: not nvfp4. Default: f32. */
  compute?: FloatCompute | undefined
}

/** y = activation(conv(x, W) + bias) + residual, or activation(conv(x, W) + bias + residual) */
export interface ConvArgs extends ConvShape {
  /** [O, C/G · taps] */
  weight: Weight
  /** [N, C, image] */
  x: Float32Array
  /** [O] */
  bias?: Float32Array | undefined
  /** [N, O, out]; may be `y`. */
  residual?: Float32Array | undefined
  /** Whether the residual is added before the activation. */
  residualFirst?: boolean | undefined
  /** None where it is absent. */
  activation?: Activation | undefined
  /** As that of {@link LinearArgs}, but not nvfp4. Default: f32. */
  compute?: FloatCompute | undefined
  /** Output, [N, O, out]. */
  y: Float32Array
  /**
   * What `winogradWeight` makes of the weight: lets the CPU convolve in tiles, with other roundings. For
   * kernels of 3 x 3 along two axes with strides, dilations and groups of 1. Other backends look at the weight alone.
   */
  winograd?: Float32Array | undefined
}

/** The gradients of {@link ConvArgs} without activation and residual. */
export interface ConvBackwardArgs extends ConvShape {
  /** [O, C/G · taps] */
  weight: Weight
  /** [N, C, image]; only dweight needs it. */
  x?: Float32Array | undefined
  /** [N, O, out] */
  dy: Float32Array
  /** Output, [N, C, image]; left out: not computed. */
  dx?: Float32Array | undefined
  /** Output, [O, C/G · taps]; left out: not computed. */
  dweight?: Float32Array | undefined
  /** Output, [O]; left out: not computed. */
  dbias?: Float32Array | undefined
  /** Of dx and dweight: as that of {@link ConvArgs}. */
  compute?: FloatCompute | undefined
}

/**
 * A transposed convolution: the dx of {@link ConvBackwardArgs} with x in the place of dy, + bias. The shape is that of
 * the convolution from y to x.
 */
export interface ConvTransposeArgs extends ConvShape {
  /** [O, C/G · taps] */
  weight: Weight
  /** [N, O, out] */
  x: Float32Array
  /** [C] */
  bias?: Float32Array | undefined
  /** Output, [N, C, image]. */
  y: Float32Array
  /** As that of {@link ConvArgs}. */
  compute?: FloatCompute | undefined
}

/** One step of AdamW (Loshchilov and Hutter 2019, algorithm 2), in place. */
export interface AdamwArgs {
  /** Number of elements. */
  count: number
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
  /** Gradient. */
  grad: Float32Array
  /** Updated. */
  param: Float32Array
  /** First moment, updated. */
  m: Float32Array
  /** Second moment, updated. */
  v: Float32Array
}

/** Arguments of each operation by its name; outputs are allocated by the caller. */
export interface KernelArgs
  extends Omit<PrecisionKernelArgs, 'cast'>,
    TensorKernelArgs,
    LayerKernelArgs,
    NetworkKernelArgs,
    IntegerKernelArgs,
    DoraKernelArgs {
  /** A weight in the layout that the CPU streams. */
  packWeight: PackWeightArgs
  /** Filters of 3 x 3 as the CPU convolves with them in tiles. */
  winogradWeight: WinogradWeightArgs
  /** A linear layer. */
  linear: LinearArgs
  /** Its gradients. */
  linearBackward: LinearBackwardArgs
  /** A convolution. */
  conv: ConvArgs
  /** Its gradients. */
  convBackward: ConvBackwardArgs
  /** A transposed convolution. */
  convTranspose: ConvTransposeArgs
  /** Products of activations. */
  matmul: MatmulArgs
  /** An optimizer step. */
  adamw: AdamwArgs
}

/** Name of an operation. */
export type KernelOp = keyof KernelArgs
