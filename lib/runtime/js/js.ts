// js.ts: the backend that runs everywhere: plain loops, one JavaScript thread.
import { precisionKernels } from '../../precision/kernels.js'
import type { KernelArgs, KernelOp, Kernels } from '../kernels.js'
import { doraBackward, doraForward, doraMerge, doraNorm, doraUnmerge, weightNorm2 } from './dora.js'
import { linear, linearBackward } from './linear.js'
import { adamw, softmaxCrossEntropy } from './training.js'

const table: { readonly [Op in KernelOp]: (args: KernelArgs[Op]) => void } = {
  ...precisionKernels,
  linear,
  linearBackward,
  weightNorm2,
  doraNorm,
  doraForward,
  doraBackward,
  doraMerge,
  doraUnmerge,
  softmaxCrossEntropy,
  adamw,
}

/** The kernels in plain TypeScript. */
export const jsKernels: Kernels = {
  backend: 'js',
  supports: op => op in table,
  runSync: (op, args) => table[op](args),
  run: async (op, args) => jsKernels.runSync(op, args),
}
