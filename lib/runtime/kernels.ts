// kernels.ts: the operations every backend offers. native/backend/backend.h is the contract (formulas, aliasing);
// field names are the same. Sizes: T tokens, I in features, O out features, R rank.
import type { DTypeArray } from '../core/dtype.js'
import type { PrecisionKernelArgs } from '../precision/kernel-args.js'

/** Formats a frozen weight can be stored in. */
export type WeightDType = 'f32' | 'f16' | 'bf16' | 'f8_e4m3' | 'nvfp4'

/** A frozen weight [rows, cols], row-major. See `Weight` in native/backend/backend.h for what an element is. */
export interface StoredWeight {
  readonly dtype: WeightDType
  readonly rows: number
  readonly cols: number
  /** f32: Float32Array; f16, bf16: bit patterns; f8_e4m3: codes; nvfp4: packed pairs [rows, cols/2]. */
  readonly data: DTypeArray
  /** [rows], f8_e4m3 only. */
  readonly rowScale?: Float32Array
  /** E4M3 bytes [rows, cols/16], nvfp4 only. */
  readonly blockScale?: Uint8Array
  /** nvfp4 only. */
  readonly tensorScale?: number
}

/** The low-rank part of a DoRA layer, V = W + scale · B·A. */
export interface LowRank {
  readonly rank: number
  readonly scale: number
  /** [R, I] */
  readonly a: Float32Array
  /** [O, R] */
  readonly b: Float32Array
}

/** Arguments of each operation; outputs are allocated by the caller. */
export interface KernelArgs extends PrecisionKernelArgs {
  linear: {
    weight: StoredWeight
    tokens: number
    x: Float32Array
    bias?: Float32Array | undefined
    y: Float32Array
  }
  linearBackward: {
    weight: StoredWeight
    tokens: number
    x: Float32Array
    dy: Float32Array
    dx?: Float32Array | undefined
    dweight?: Float32Array | undefined
    dbias?: Float32Array | undefined
  }
  weightNorm2: { weight: StoredWeight; out: Float32Array }
  doraNorm: LowRank & {
    weight: StoredWeight
    weightNorm2: Float32Array
    magnitude: Float32Array
    norm: Float32Array
    gain: Float32Array
  }
  doraForward: LowRank & {
    weight: StoredWeight
    tokens: number
    x: Float32Array
    gain: Float32Array
    bias?: Float32Array | undefined
    mask?: Float32Array | undefined
    xa: Float32Array
    z?: Float32Array | undefined
    y: Float32Array
  }
  doraBackward: LowRank & {
    weight: StoredWeight
    tokens: number
    exactNorm: boolean
    x: Float32Array
    mask?: Float32Array | undefined
    dy: Float32Array
    xa: Float32Array
    z: Float32Array
    norm: Float32Array
    gain: Float32Array
    magnitude: Float32Array
    dx?: Float32Array | undefined
    da: Float32Array
    db: Float32Array
    dmagnitude: Float32Array
    dbias?: Float32Array | undefined
  }
  doraMerge: LowRank & { weight: StoredWeight; gain: Float32Array; merged: Float32Array }
  doraUnmerge: LowRank & {
    rows: number
    cols: number
    merged: Float32Array
    gain: Float32Array
    restored: Float32Array
  }
  softmaxCrossEntropy: {
    tokens: number
    classes: number
    logits: Float32Array
    labels: Int32Array
    loss: Float32Array
    dlogits?: Float32Array | undefined
  }
  adamw: {
    count: number
    step: number
    lr: number
    beta1: number
    beta2: number
    eps: number
    weightDecay: number
    grad: Float32Array
    param: Float32Array
    m: Float32Array
    v: Float32Array
  }
}

/** Name of an operation. */
export type KernelOp = keyof KernelArgs

/** Where kernels run. */
export type KernelBackend = 'cuda' | 'cpu' | 'js'

/**
 * The operations of one backend. Outputs are typed arrays of the caller's; with {@link Kernels.run} operands must not
 * be touched until the promise settles.
 */
export interface Kernels {
  /** Which backend this is. */
  readonly backend: KernelBackend
  /** Whether the backend has a kernel for `op`. */
  supports(op: KernelOp): boolean
  /**
   * Performs `op` without blocking the JavaScript thread (`js` computes before it returns).
   * @throws SparkError ERR_UNSUPPORTED when the backend lacks the operation
   */
  run<Op extends KernelOp>(op: Op, args: KernelArgs[Op]): Promise<void>
  /**
   * Performs `op` before it returns.
   * @throws SparkError ERR_UNSUPPORTED when the backend lacks the operation or cannot wait (cuda)
   */
  runSync<Op extends KernelOp>(op: Op, args: KernelArgs[Op]): void
}
