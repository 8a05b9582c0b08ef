// kernels.ts: an engine, as everything above it sees it.
import type { DTypeArray } from '../core/dtype.js'
import type { KernelArgs, KernelOp } from './kernel-args.js'

export type * from './kernel-args.js'

/** Where kernels run. */
export type KernelBackend = 'cuda' | 'cpu' | 'js'

/** What the arrays of a stored weight are. */
export type HoldableArray = DTypeArray | Int8Array

/** A copy of an array that stays where the kernels of a backend read it. */
export interface HeldArray<A extends HoldableArray = HoldableArray> {
  /** The copy, or the original where all memory is as good. */
  readonly array: A
  /** Frees the copy. */
  dispose(): void
}

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
  /**
   * Puts an operand of many calls, such as a frozen weight, where the kernels read it without a copy in each call.
   * @throws SparkError ERR_OUT_OF_MEMORY
   */
  hold<A extends HoldableArray>(array: A): Promise<HeldArray<A>>
}
