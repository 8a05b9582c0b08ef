import { largestError } from '../core/difference.js'
import { type ElementArray, type ElementType, type HalfType, isHalf } from '../core/dtype.js'
import type { SparkError } from '../core/errors.js'
import { floatReader } from '../kernels/js/elements.js'
import type { HeldArray, KernelBackend, KernelOp, Kernels } from '../kernels/kernels.js'
import { verifyCases } from './verify/cases.js'
import { ownerOf, type VerifyCase, type VerifySizes } from './verify/values.js'

/** What became of one operation on one backend. */
export interface VerifyResult {
  /** Operation. */
  readonly op: KernelOp
  /** Formats and sizes of the case. */
  readonly variant: string
  /** Backend under test. */
  readonly backend: KernelBackend
  /** `unsupported`: the backend has no such kernel, or none for these formats. */
  readonly status: 'passed' | 'failed' | 'unsupported'
  /** Largest max|a - b| / max|b| over the outputs, b being the reference. */
  readonly error: number
  /** What `error` may be; 0 means bit-equal. */
  readonly tolerance: number
  /** Why it failed, in words. */
  readonly reason?: string
}

/**
 * Runs every operation of `candidate` and compares the outputs with those of `reference`.
 * @param candidate - kernels under test
 * @param reference - kernels that define what is correct (the CPU's)
 * @param sizes - of the operands; small odd ones by default
 */
export async function verifyKernels(
  candidate: Kernels,
  reference: Kernels,
  sizes?: VerifySizes,
): Promise<VerifyResult[]> {
  const results: VerifyResult[] = []
  for (const current of verifyCases(reference, sizes, candidate.backend))
    results.push(await verifyOne(current, candidate, reference))
  return results
}

async function verifyOne(current: VerifyCase, candidate: Kernels, reference: Kernels): Promise<VerifyResult> {
  const { op, variant, tolerance } = current
  const about = { op, variant, backend: candidate.backend, tolerance }
  if (!candidate.supports(op)) return { ...about, status: 'unsupported', error: 0 }
  const expected = Object.assign(current.args(), current.referenceArgs)
  reference.runSync(op, expected)
  const operands = current.args()
  let held: HeldArray[] = []
  try {
    held = await holdOutputs(current, candidate, operands)
    await candidate.run(op, operands)
    const errors = current.outputs.map(name => largestError(output(operands, name), output(expected, name)))
    const error = Math.max(...errors)
    if (error <= tolerance) return { ...about, status: 'passed', error }
    const worst = current.outputs[errors.indexOf(error)]
    return { ...about, status: 'failed', error, reason: `output '${worst}' differs from the reference` }
  } catch (error) {
    if ((error as SparkError).code === 'ERR_UNSUPPORTED') return { ...about, status: 'unsupported', error: 0 }
    return { ...about, status: 'failed', error: Number.NaN, reason: (error as Error).message }
  } finally {
    for (const { dispose } of held) dispose()
  }
}

/** An output, of activations in 16 bits as f32; of a reference without such ones beside y, y. */
function output(args: object, path: string): ElementArray {
  const [owner, name] = ownerOf(args, path)
  const array = owner[name] ?? owner.y!
  const { yDtype, halfDtype } = args as { readonly yDtype?: ElementType; readonly halfDtype?: HalfType }
  const type = name === 'y' ? yDtype : name === 'yHalf' ? halfDtype : undefined
  return type && isHalf(type) ? Float32Array.from(array.keys(), floatReader(type, array)) : array
}

/**
 * Puts the outputs where the kernels write them: memory that calls share could still hold the right answer of another.
 */
function holdOutputs({ outputs }: VerifyCase, candidate: Kernels, args: object): Promise<HeldArray[]> {
  return Promise.all(
    outputs.map(async path => {
      const [owner, name] = ownerOf(args, path)
      const held = await candidate.hold(owner[name]!)
      owner[name] = held.array
      return held
    }),
  )
}
