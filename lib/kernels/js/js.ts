// js.ts: the backend that runs everywhere: plain loops, one JavaScript thread.
import { freemem } from 'node:os'
import { expectAttached } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { atOnce, type Paced, Pacer } from '../../core/paced.js'
import { makeUntransferable } from '../../core/untransferable.js'
import { precisionKernels } from '../../precision/kernels.js'
import { packWeight } from '../../weights/panels.js'
import type { BoundStep, KernelArgs, KernelOp, Kernels, PreparedSteps } from '../kernels.js'
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

/** Kernels; products, which may take long, pause. */
const table: { readonly [Op in KernelOp]: (args: KernelArgs[Op]) => void | Paced<void> } = {
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

/** An error about a step, which it names. */
function named(label: string, error: unknown): unknown {
  return error instanceof SparkError ? new SparkError(error.code, `${label}: ${error.message}`) : error
}

/** One array of each ArrayBuffer that operands lie in, which can then no longer be transferred. */
function heldArrays(args: object): ArrayBufferView[] {
  const arrays = new Map<ArrayBufferLike, ArrayBufferView>()
  const visit = (operand: unknown): void => {
    if (typeof operand !== 'object' || operand === null) return
    if (!ArrayBuffer.isView(operand)) Object.values(operand).forEach(visit)
    else if (operand.byteLength > 0) arrays.set(operand.buffer, operand)
  }
  visit(args)
  for (const buffer of arrays.keys()) if (buffer instanceof ArrayBuffer) makeUntransferable(buffer)
  return [...arrays.values()]
}

/** Checks the operands once; runs only compute. */
function prepareSteps(steps: readonly BoundStep[]): PreparedSteps {
  const calls = steps.map(({ op, args, node }, i) => {
    const label = `step ${i} of the plan, ${op}${node === undefined ? '' : ` of node '${node}'`}`
    if (!(op in table)) throw new SparkError('ERR_UNSUPPORTED', `${label}: there is no such operation`)
    try {
      expectOperands(op, args as never)
    } catch (error) {
      throw named(label, error)
    }
    const kernel = table[op] as (args: object) => void | Paced<void>
    return { label, kernel, args, held: heldArrays(args) }
  })
  const expectHeld = ({ held }: { held: readonly ArrayBufferView[] }): void => {
    for (const array of held) expectAttached('an operand of the plan', array)
  }
  const computing = function* (): Paced<void> {
    calls.forEach(expectHeld)
    for (const call of calls) {
      expectHeld(call) // somebody may have taken it away in a pause
      try {
        const work = call.kernel(call.args)
        if (work) yield* work
      } catch (error) {
        throw named(call.label, error)
      }
      yield
    }
  }
  return {
    run: async signal => new Pacer(signal).do(computing()),
    async fetch() {},
    async store() {},
    dispose() {},
  }
}

/** The kernels in plain TypeScript. */
export const jsKernels: Kernels = {
  backend: 'js',
  bf16Support: 'none',
  freeBytes: freemem,
  supports: op => op in table,
  runSync(op, args) {
    if (!(op in table)) throw new SparkError('ERR_UNSUPPORTED', `there is no operation called '${op}'`)
    expectOperands(op, args)
    const work = table[op](args)
    if (work) atOnce(work)
  },
  run: async (op, args) => jsKernels.runSync(op, args),
  runOwned: async (op, args) => jsKernels.runSync(op, args),
  prepare: prepareSteps,
  hold: async array => ({ array, dispose() {} }),
}
