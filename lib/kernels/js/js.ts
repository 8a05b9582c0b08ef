// js.ts: the backend that runs everywhere: plain loops, one JavaScript thread.
import { freemem } from 'node:os'
import { expectAttached } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { atOnce, type Paced, Pacer } from '../../core/paced.js'
import { makeUntransferable } from '../../core/untransferable.js'
import type { BoundStep, KernelOp, Kernels, PreparedSteps } from '../kernels.js'
import { attentionRows } from './attention.js'
import { collectiveRows } from './collective.js'
import { convRows } from './conv.js'
import { doraRows } from './dora.js'
import { dropoutRows } from './dropout.js'
import { expertLinearRows } from './expert-linear.js'
import { gridSampleRows } from './grid-sample.js'
import { indexedRows } from './indexed.js'
import { integerRows } from './integer.js'
import { linearRows } from './linear.js'
import { normalizationRows } from './normalizations.js'
import { expectOperands } from './operands.js'
import { pagedAttentionRows } from './paged-attention.js'
import { pointwiseDepthwiseRows } from './pointwise-depthwise.js'
import { poolRows } from './pool.js'
import { precisionRows } from './precision.js'
import { recurrentRows } from './recurrent.js'
import { resampleRows } from './resample.js'
import { rotaryRows } from './rotary.js'
import type { KernelRow, KernelRows } from './row.js'
import { stridedRows } from './strided.js'
import { trainingRows } from './training.js'
import { warpFramesRows } from './warp-frames.js'
import { weightRows } from './weight.js'

/** All operations; the type wants each of them. */
const table: KernelRows<KernelOp> = {
  ...precisionRows,
  ...weightRows,
  ...linearRows,
  ...expertLinearRows,
  ...convRows,
  ...pointwiseDepthwiseRows,
  ...collectiveRows,
  ...integerRows,
  ...doraRows,
  ...normalizationRows,
  ...attentionRows,
  ...pagedAttentionRows,
  ...rotaryRows,
  ...trainingRows,
  ...poolRows,
  ...resampleRows,
  ...gridSampleRows,
  ...warpFramesRows,
  ...recurrentRows,
  ...dropoutRows,
  ...stridedRows,
  ...indexedRows,
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
    const row = table[op] as KernelRow<object>
    try {
      expectOperands(row, args)
    } catch (error) {
      throw named(label, error)
    }
    return { label, kernel: row.kernel, args, held: heldArrays(args) }
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
    async run(signal, times = 1) {
      const pacer = new Pacer(signal)
      for (let i = 0; i < times; i++) await pacer.do(computing())
    },
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
    const row = table[op]
    expectOperands(row, args)
    const work = row.kernel(args)
    if (work) atOnce(work)
  },
  run: async (op, args) => jsKernels.runSync(op, args),
  runOwned: async (op, args) => jsKernels.runSync(op, args),
  prepare: prepareSteps,
  hold: async array => ({ array, dispose() {} }),
}
