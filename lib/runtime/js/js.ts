// js.ts: the backend that runs everywhere: plain loops, one JavaScript thread.
import { SparkError } from '../../core/errors.js'
import { precisionKernels } from '../../precision/kernels.js'
import type { KernelArgs, KernelOp, Kernels } from '../kernels.js'
import { packWeight } from '../packed-weight.js'
import { conv, convBackward, convTranspose } from './conv.js'
import {
  doraBackward,
  doraForward,
  doraMerge,
  doraMixed,
  doraNorm,
  doraUnmerge,
  weightNorm2,
} from './dora.js'
import { linear, linearBackward, linearInteger, matmul } from './linear.js'
import { expectOperands } from './operands.js'
import { adamw, softmaxCrossEntropy } from './training.js'

const table: { readonly [Op in KernelOp]: (args: KernelArgs[Op]) => void } = {
  ...precisionKernels,
  packWeight: ({ weight, data, blockScale }) => packWeight(weight, data, blockScale),
  linear,
  linearBackward,
  conv,
  convBackward,
  convTranspose,
  linearInteger,
  matmul,
  weightNorm2,
  doraNorm,
  doraForward,
  doraMixed,
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
  runSync(op, args) {
    if (!(op in table)) throw new SparkError('ERR_UNSUPPORTED', `there is no operation called '${op}'`)
    expectOperands(op, args)
    table[op](args)
  },
  run: async (op, args) => jsKernels.runSync(op, args),
  hold: async array => ({ array, dispose() {} }),
}
