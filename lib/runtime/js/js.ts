// js.ts: the backend that runs everywhere: plain loops, one JavaScript thread.
import { freemem } from 'node:os'
import { expectAttached } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { Pacer } from '../../core/paced.js'
import { makeUntransferable } from '../../core/untransferable.js'
import { precisionKernels } from '../../precision/kernels.js'
import type { BoundStep, KernelArgs, KernelOp, Kernels, PreparedSteps } from '../kernels.js'
import { packWeight } from '../packed-weight.js'
import { attention, attentionBackward } from './attention.js'
import { conv, convBackward, convTranspose } from './conv.js'
import {
  doraBackward,
  doraForward,
  doraMerge,
  doraMergeBackward,
  doraMixed,
  doraNorm,
  doraUnmerge,
  weightNorm2,
} from './dora.js'
import { dropoutMask } from './dropout.js'
import { gridSample } from './grid-sample.js'
import { gather, scatter } from './indexed.js'
import {
  binaryBytes,
  convInteger,
  dequantize,
  linearInteger,
  lookup,
  meanBytes,
  quantize,
} from './integer.js'
import { linear, linearBackward, matmul } from './linear.js'
import {
  batchNorm,
  batchNormBackward,
  batchStatistics,
  norm,
  normBackward,
  softmax,
  softmaxBackward,
} from './normalizations.js'
import { expectOperands } from './operands.js'
import { pool, poolBackward } from './pool.js'
import { recurrent } from './recurrent.js'
import { resample } from './resample.js'
import { binary, cast, copyStrided, cumulate, reduce, select, topK, unary } from './tensor.js'
import { adamw, softmaxCrossEntropy } from './training.js'
import { winogradWeight } from './winograd.js'

const table: { readonly [Op in KernelOp]: (args: KernelArgs[Op]) => void } = {
  ...precisionKernels,
  cast,
  packWeight: ({ weight, data, blockScale }) => packWeight(weight, data, blockScale),
  winogradWeight,
  linear,
  linearBackward,
  conv,
  convBackward,
  convTranspose,
  linearInteger,
  convInteger,
  quantize,
  dequantize,
  lookup,
  binaryBytes,
  meanBytes,
  matmul,
  weightNorm2,
  doraNorm,
  doraForward,
  doraMixed,
  doraBackward,
  doraMerge,
  doraMergeBackward,
  doraUnmerge,
  softmax,
  softmaxBackward,
  norm,
  normBackward,
  batchStatistics,
  batchNorm,
  batchNormBackward,
  attention,
  attentionBackward,
  softmaxCrossEntropy,
  adamw,
  unary,
  binary,
  select,
  reduce,
  cumulate,
  topK,
  copyStrided,
  gather,
  scatter,
  pool,
  poolBackward,
  resample,
  dropoutMask,
  gridSample,
  recurrent,
}

/** Names of all operations. */
export const kernelNames = Object.keys(table).sort() as readonly KernelOp[]

/** Does something for a step, which errors then name. */
function named(label: string, work: () => void): void {
  try {
    work()
  } catch (error) {
    throw error instanceof SparkError ? new SparkError(error.code, `${label}: ${error.message}`) : error
  }
}

/** One array of each ArrayBuffer that operands lie in, which can then no longer be transferred. */
function heldArrays(steps: readonly BoundStep[]): ArrayBufferView[] {
  const arrays = new Map<ArrayBufferLike, ArrayBufferView>()
  const visit = (operand: unknown): void => {
    if (typeof operand !== 'object' || operand === null) return
    if (!ArrayBuffer.isView(operand)) Object.values(operand).forEach(visit)
    else if (operand.byteLength > 0) arrays.set(operand.buffer, operand)
  }
  for (const { args } of steps) visit(args)
  for (const buffer of arrays.keys()) if (buffer instanceof ArrayBuffer) makeUntransferable(buffer)
  return [...arrays.values()]
}

/** Checks the operands once; runs only compute. */
function prepareSteps(steps: readonly BoundStep[]): PreparedSteps {
  const calls = steps.map(({ op, args, node }, i) => {
    const label = `step ${i} of the plan, ${op}${node === undefined ? '' : ` of node '${node}'`}`
    if (!(op in table)) throw new SparkError('ERR_UNSUPPORTED', `${label}: there is no such operation`)
    named(label, () => expectOperands(op, args as never))
    const kernel = table[op] as (args: object) => void
    return () => named(label, () => kernel(args))
  })
  const held = heldArrays(steps)
  const expectHeld = (): void => {
    for (const array of held) expectAttached('an operand of the plan', array)
  }
  return {
    async run() {
      expectHeld()
      const pacer = new Pacer()
      for (const call of calls) {
        call()
        if (!pacer.isDue) continue
        await pacer.pause()
        expectHeld()
      }
    },
    async fetch() {},
    async store() {},
    dispose() {},
  }
}

/** The kernels in plain TypeScript. */
export const jsKernels: Kernels = {
  backend: 'js',
  bf16Units: 'none',
  freeBytes: freemem,
  supports: op => op in table,
  runSync(op, args) {
    if (!(op in table)) throw new SparkError('ERR_UNSUPPORTED', `there is no operation called '${op}'`)
    expectOperands(op, args)
    table[op](args)
  },
  run: async (op, args) => jsKernels.runSync(op, args),
  runOwned: async (op, args) => jsKernels.runSync(op, args),
  prepare: prepareSteps,
  hold: async array => ({ array, dispose() {} }),
}
