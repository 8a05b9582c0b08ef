// prepared-calls.ts: kernel calls prepared once and then run with or without waiting.
import type { KernelArgs, KernelOp, Kernels } from '../../kernels/kernels.js'

/** A kernel call. */
export type Step = { [Op in KernelOp]: readonly [op: Op, args: KernelArgs[Op]] }[KernelOp]

/** Kernel calls in order, on memory that is held or that nobody else has, and what to do with their outputs. */
export interface Work<T> {
  readonly steps: readonly Step[]
  finish(): T
}

/** Runs `work` without blocking the JavaScript thread. */
export async function run<T>(kernels: Kernels, { steps, finish }: Work<T>): Promise<T> {
  for (const [op, args] of steps) await kernels.runOwned(op, args)
  return finish()
}

/** Runs `work` before it returns. */
export function runSync<T>(kernels: Kernels, { steps, finish }: Work<T>): T {
  for (const [op, args] of steps) kernels.runSync(op, args)
  return finish()
}
