// halves.ts: activations in 16 bits among the cases of `dgx-spark verify`.
import type { HalfType } from '../../core/dtype.js'
import { floatReader } from '../../kernels/js/elements.js'
import { depthUnit } from '../../kernels/linear-args.js'
import type { Weight } from '../../kernels/weight-args.js'
import {
  bf16Tolerance,
  f32,
  halfTolerance,
  rounded,
  type VerifyCase,
  type VerifySizes,
  values,
  verifyCase,
} from './values.js'

const tolerances: Readonly<Record<HalfType, number>> = { bf16: bf16Tolerance, f16: halfTolerance }

/** Products of rows in 16 bits, few and many, and results in them, against those in f32. */
export function halfCases(sizes: VerifySizes): VerifyCase[] {
  return (['bf16', 'f16'] as const).flatMap(type => [...linearCases(type, sizes), normCase(type, sizes)])
}

/** Seeded values in [-1, 1). */
const halfValues = (type: HalfType, count: number, seed: number): Uint16Array =>
  rounded(type, values(count, seed))

function linearCases(type: HalfType, { tokens, rows, cols: atLeast }: VerifySizes): VerifyCase[] {
  const cols = depthUnit * Math.ceil(atLeast / depthUnit)
  const weight: Weight = { format: type, rows, cols, data: halfValues(type, rows * cols, 81) }
  return [tokens, tokens + 17].map(tokens => {
    const x = halfValues(type, tokens * cols, 82)
    const forward = { weight, tokens, x, xDtype: type, yDtype: type, compute: type } as const
    const reference = {
      x: Float32Array.from(x.keys(), floatReader(type, x)),
      y: f32(tokens * rows),
      ...{ xDtype: undefined, yDtype: undefined },
    }
    const args = () => ({ ...forward, y: new Uint16Array(tokens * rows) })
    return verifyCase('linear', `${type} activations, ${tokens}`, ['y'], tolerances[type], args, reference)
  })
}

function normCase(yDtype: HalfType, { tokens: rows, cols }: VerifySizes): VerifyCase {
  const shape = { rows, cols, groups: 1, inner: 1, centered: false, eps: 1e-2, x: values(rows * cols, 83) }
  const args = () => ({ ...shape, yDtype, y: new Uint16Array(rows * cols) })
  const reference = { yDtype: undefined, y: f32(rows * cols) }
  return verifyCase('norm', `${yDtype} activations`, ['y'], tolerances[yDtype], args, reference)
}
