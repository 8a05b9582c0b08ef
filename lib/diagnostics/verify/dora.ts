// dora.ts: one call of every operation of DoRA layers.
import type { Compute, KernelArgs, Kernels, Weight } from '../../kernels/kernels.js'
import {
  bf16Tolerance,
  f32,
  sumTolerance,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
} from './values.js'

/** A DoRA layer on a weight, with the norms that the reference computes, and its input. */
interface DoraProblem {
  readonly reference: Kernels
  readonly sizes: VerifySizes
  readonly layer: Pick<KernelArgs['doraForward'], 'weight' | 'rank' | 'scale' | 'a' | 'b'>
  readonly weightNorm2: Float32Array
  readonly magnitude: Float32Array
  readonly norm: Float32Array
  readonly gain: Float32Array
  readonly x: Float32Array
  readonly mask: Float32Array
  readonly bias: Float32Array
}

function doraProblem(reference: Kernels, weight: Weight, sizes: VerifySizes): DoraProblem {
  const { tokens, rows, cols, rank } = sizes
  const layer = { weight, rank, scale: 0.5, a: values(rank * cols, 6), b: values(rows * rank, 7) }
  const weightNorm2 = f32(rows)
  reference.runSync('weightNorm2', { weight, out: weightNorm2 })
  const magnitude = weightNorm2.map(square => 1.25 * Math.sqrt(square))
  const norms = { norm: f32(rows), gain: f32(rows) }
  reference.runSync('doraNorm', { ...layer, weightNorm2, magnitude, ...norms })
  const x = values(tokens * cols, 8)
  const mask = values(tokens * cols, 10).map(value => (value > 0 ? 2 : 0))
  return { reference, sizes, layer, weightNorm2, magnitude, ...norms, x, mask, bias: values(rows, 9) }
}

/** What forward passes with `weight` can be formed of, but for f32 and bf16. */
function otherComputes({ format }: Weight): Compute[] {
  if (format === 'nvfp4') return ['nvfp4']
  return format === 'f16' || format === 'f32' ? ['f16'] : []
}

/** Every operation of a DoRA layer on `weight`. */
export function doraCases(reference: Kernels, weight: Weight, sizes: VerifySizes): VerifyCase[] {
  const problem = doraProblem(reference, weight, sizes)
  return [...forwardCases(problem), ...backwardCases(problem), ...mergeCases(problem)]
}

function forwardArgs(
  { layer, gain, x, bias, sizes: { tokens, rows, rank } }: DoraProblem,
  mask?: Float32Array,
): KernelArgs['doraForward'] {
  const outputs = { xa: f32(tokens * rank), z: f32(tokens * rows), y: f32(tokens * rows) }
  return { ...layer, tokens, x, gain, bias, mask, ...outputs }
}

function forwardCases(problem: DoraProblem): VerifyCase[] {
  const { layer, weightNorm2, magnitude, gain, x, bias, mask, sizes } = problem
  const { tokens, rows } = sizes
  const { weight } = layer
  const tolerance = sumTolerance(sizes)
  const outputs = ['xa', 'z', 'y'] as const
  return [
    verifyCase('doraNorm', weight.format, ['norm', 'gain'], tolerance, () => {
      return { ...layer, weightNorm2, magnitude, norm: f32(rows), gain: f32(rows) }
    }),
    verifyCase('doraForward', weight.format, outputs, tolerance, () => forwardArgs(problem)),
    verifyCase('doraForward', `${weight.format}, dropout`, outputs, tolerance, () =>
      forwardArgs(problem, mask),
    ),
    verifyCase('doraMixed', weight.format, ['y'], tolerance, () => {
      const half = { ...layer, rank: layer.rank >> 1, gain: magnitude }
      const index = Int32Array.from({ length: tokens }, (_, t) => ((t + 1) % 3) - 1)
      return { weight, tokens, x, bias, adapters: [{ ...layer, gain }, half], index, y: f32(tokens * rows) }
    }),
    ...(['bf16', ...otherComputes(weight)] as const).map(compute =>
      verifyCase('doraForward', `${weight.format}, ${compute}`, outputs, bf16Tolerance, () => {
        return { ...forwardArgs(problem), compute }
      }),
    ),
  ]
}

function backwardArgs(
  problem: DoraProblem,
  { exactNorm = false, mask }: { exactNorm?: boolean; mask?: Float32Array },
): KernelArgs['doraBackward'] {
  const { reference, layer, magnitude, norm, gain, x } = problem
  const { tokens, rows, cols, rank } = problem.sizes
  const saved = forwardArgs(problem, mask)
  reference.runSync('doraForward', saved)
  const dy = values(tokens * rows, 12)
  const inputs = { x, mask, dy, xa: saved.xa, z: saved.z!, norm, gain, magnitude }
  const outputs = {
    dx: f32(tokens * cols),
    da: f32(rank * cols),
    db: f32(rows * rank),
    dmagnitude: f32(rows),
    dbias: f32(rows),
  }
  return { ...layer, tokens, exactNorm, ...inputs, ...outputs }
}

function backwardCases(problem: DoraProblem): VerifyCase[] {
  const { layer, mask, sizes } = problem
  const tolerance = sumTolerance(sizes)
  const gradients = ['dx', 'da', 'db', 'dmagnitude', 'dbias'] as const
  const { format } = layer.weight
  const variants = {
    detached: {},
    exact: { exactNorm: true },
    dropout: { mask },
  }
  return [
    ...Object.entries(variants).map(([name, options]) =>
      verifyCase('doraBackward', `${format}, ${name}`, gradients, tolerance, () =>
        backwardArgs(problem, options),
      ),
    ),
    verifyCase('doraBackward', `${format}, bf16`, gradients, bf16Tolerance, () => {
      return { ...backwardArgs(problem, {}), compute: 'bf16' }
    }),
    verifyCase('doraBackward', `${format}, bf16, dropout`, gradients, bf16Tolerance, () => {
      return { ...backwardArgs(problem, { mask }), compute: 'bf16' }
    }),
  ]
}

function mergeCases({ layer, norm, gain, sizes }: DoraProblem): VerifyCase[] {
  const { rows, cols, rank } = sizes
  const { format } = layer.weight
  const tolerance = sumTolerance(sizes)
  const merged = values(rows * cols, 13)
  const backward = (exactNorm: boolean): KernelArgs['doraMergeBackward'] => {
    const outputs = {
      dv: f32(rows * cols),
      da: f32(rank * cols),
      db: f32(rows * rank),
      dmagnitude: f32(rows),
    }
    return { ...layer, exactNorm, dmerged: merged, norm, gain, ...outputs }
  }
  return [
    verifyCase('doraMerge', format, ['merged'], tolerance, () => {
      return { ...layer, gain, merged: f32(rows * cols) }
    }),
    ...[false, true].map(exactNorm => {
      const outputs = ['dv', 'da', 'db', 'dmagnitude'] as const
      const variant = `${format}, ${exactNorm ? 'exact' : 'detached'}`
      return verifyCase('doraMergeBackward', variant, outputs, tolerance, () => backward(exactNorm))
    }),
    verifyCase('doraUnmerge', format, ['restored'], tolerance, () => {
      return { ...layer, rows, cols, merged, gain, restored: f32(rows * cols) }
    }),
  ]
}
