// kernel-calls.ts: sequences of kernel calls that run synchronously or asynchronously.
import type { KernelArgs, KernelOp, Kernels } from '../../kernels/kernels.js'

/** One kernel operation with its arguments. */
export type KernelCall = { [Op in KernelOp]: readonly [op: Op, args: KernelArgs[Op]] }[KernelOp]

/** Kernel calls in order, on memory that is held or owned, and the result that their outputs make. */
export interface KernelCalls<T> {
  readonly calls: readonly KernelCall[]
  /** To be called once, after the last call has run. */
  result(): T
}

/** Runs the calls without blocking the JavaScript thread. */
export async function run<T>(kernels: Kernels, { calls, result }: KernelCalls<T>): Promise<T> {
  for (const [op, args] of calls) await kernels.runOwned(op, args)
  return result()
}

/** Runs the calls and returns when all are done. */
export function runSync<T>(kernels: Kernels, { calls, result }: KernelCalls<T>): T {
  for (const [op, args] of calls) kernels.runSync(op, args)
  return result()
}
