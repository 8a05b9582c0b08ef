// linear-args.ts: arguments of linear layers and of products of matrices. Contract: native/backend/linear_args.h. Sizes:
// T tokens (rows of an activation), I in features, O out features.
import type { TypedArrayOf } from '../core/dtype.js'
import type { Compute, FloatCompute, Weight } from './weight-args.js'

/** Types of activations; on CUDA those of 16 bits, too, which products take without rounding them. */
export type ActivationDType = 'f32' | 'bf16' | 'f16'

/** Elements of an {@link ActivationDType}. */
export type Activations = TypedArrayOf<ActivationDType>

/** What the columns of a weight are a multiple of whose product takes activations of 16 bits. */
export const depthUnit = 32

/**
 * What rows are a multiple of that are rounded to NVFP4 once for several products. They have as many elements of 16 bits as in
 * f32, and only the device that wrote them reads them: it decides whether they hold codes and scales, or numbers in bf16.
 */
export const roundedUnit = 64

/** Activations of linear layers and convolutions; gelu by erf or, `gelu_tanh`, by tanh. */
export type Activation =
  | 'none'
  | 'relu'
  | 'gelu'
  | 'gelu_tanh'
  | 'silu'
  | 'sigmoid'
  | 'tanh'
  | 'relu6'
  | 'hard_swish'

/** Strides in elements of a batch of matrices: outer batch, inner batch, row, column; 0 repeats a matrix. */
export type MatrixStrides = readonly [outer: number, inner: number, row: number, col: number]

/** y = activation(gate ∘ rowScale ∘ (x · Wᵀ) + bias) + residual; see `LinearArgs` in native/backend/linear_args.h. */
export interface LinearArgs {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Activations
  /**
   * Of `x`: f32; the number of `compute`, for an I that is a multiple of {@link depthUnit}; nvfp4, on CUDA, rounded rows for a
   * product in it. Default: f32.
   */
  xDtype?: ActivationDType | 'nvfp4' | undefined
  /** Output of a product in nvfp4 on CUDA, [T, I]: x as rounded rows, for other products; see {@link roundedUnit}. */
  xRounded?: Uint16Array | undefined
  /**
   * Of a product in nvfp4: the tensor scale that x of f32 is rounded with, a power of two; magnitudes over 2688 times it are
   * clipped. Absent: each row has one of its own, which its largest magnitude asks for.
   */
  xScale?: number | undefined
  /** [O]; absent: 1. */
  rowScale?: Float32Array | undefined
  /** [O]; absent: 0. */
  bias?: Float32Array | undefined
  /** [T, O]; absent: 0. May be `y` of f32. */
  residual?: Float32Array | undefined
  /** [T, O]; absent: 1. May be `y` of f32. */
  gate?: Float32Array | undefined
  /** Default: none. */
  activation?: Activation | undefined
  /** bf16; f16, for weights of f16 and f32; nvfp4, for weights of nvfp4; i8, for weights in blocks. Default: f32. */
  compute?: Compute | undefined
  /** Output, [T, O]; may be absent beside `yRounded`. */
  y?: Activations | undefined
  /** Of `y`. Default: f32. */
  yDtype?: ActivationDType | undefined
  /** Output of a product in nvfp4 on CUDA, [T, O]: y of f32 as rounded rows with `yScale`; see {@link roundedUnit}. */
  yRounded?: Uint16Array | undefined
  /** Tensor scale of `yRounded`, as `xScale`. */
  yScale?: number | undefined
}

/** Rows of a table, decoded; see `GatherRowsArgs` in native/backend/linear_args.h. */
export interface GatherRowsArgs {
  /** [R, C] */
  weight: Weight
  /** Rows of y. */
  count: number
  /** [count], from −R on and less than R; a negative one counts from the end. */
  indices: BigInt64Array
  /** Output, [count, C]. */
  y: Float32Array
}

/** Gradients of a linear layer; see `LinearBackwardArgs` in native/backend/linear_args.h. */
export interface LinearBackwardArgs {
  /** [O, I] */
  weight: Weight
  /** T */
  tokens: number
  /** [T, I] */
  x: Float32Array
  /** [T, O] */
  dy: Float32Array
  /** Output, [T, I]; absent: not computed. */
  dx?: Float32Array | undefined
  /** Output, [O, I]; absent: not computed. */
  dweight?: Float32Array | undefined
  /** Output, [O]; absent: not computed. */
  dbias?: Float32Array | undefined
  /** Of dx and dweight; as that of {@link LinearArgs}. Default: f32. */
  compute?: FloatCompute | undefined
}

/** y = alpha · a · b for a batch of matrices; see `MatmulArgs` in native/backend/linear_args.h. */
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
  /** Matrices [m, k]. */
  a: Float32Array
  /** Of `a`; that of rows or that of columns is 1. */
  aStrides: MatrixStrides
  /** Matrices [k, n]. */
  b: Float32Array
  /** Of `b`; that of rows or that of columns is 1. */
  bStrides: MatrixStrides
  /** Output, matrices [m, n]. */
  y: Float32Array
  /** Of `y`; that of columns is 1, and rows do not overlap. */
  yStrides: MatrixStrides
  /** A GPU rounds a and b to bf16 or f16; other backends compute in f32. Default: f32. */
  compute?: FloatCompute | undefined
}

/**
 * A linear layer of which each token chooses some experts: y[n, j] = W[choice[n, j]] · x[n] + bias[choice[n, j]]; see
 * `ExpertLinearArgs` in native/backend/linear_args.h.
 */
export interface ExpertLinearArgs {
  /** [E · O, I], one expert behind the other. */
  weight: Weight
  /** E */
  experts: number
  /** N */
  tokens: number
  /** k, experts that a token chooses. */
  choices: number
  /** Whether each choice has a row of x. Default: false. */
  perChoice?: boolean | undefined
  /** [N, I], with `perChoice` [N, k, I]. */
  x: Float32Array
  /** [N, k], each in [0, E). A GPU fills the row of another one with NaN. */
  choice: BigInt64Array
  /** [E, O]; absent: 0. */
  bias?: Float32Array | undefined
  /** Output, [N, k, O]. */
  y: Float32Array
}

/** Arguments of linear layers and of products of matrices. */
export interface LinearKernelArgs {
  /** A linear layer. */
  linear: LinearArgs
  /** Its gradients. */
  linearBackward: LinearBackwardArgs
  /** Rows of a table. */
  gatherRows: GatherRowsArgs
  /** Products of activations. */
  matmul: MatmulArgs
  /** Linear layers of experts. */
  expertLinear: ExpertLinearArgs
}
