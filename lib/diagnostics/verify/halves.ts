// halves.ts: activations in 16 bits among the cases of `dgx-spark verify`.
import type { HalfType } from '../../core/dtype.js'
import { channelsLastCopy } from '../../kernels/js/channels-last.js'
import { floatReader } from '../../kernels/js/elements.js'
import { jsKernels } from '../../kernels/js/js.js'
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
  return (['bf16', 'f16'] as const).flatMap(type => [
    ...linearCases(type, sizes),
    normCase(type, sizes),
    convCase(type),
  ])
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

/** An image with its channels last; outputs have one position, where those of planes lie the same way. */
function convCase(type: HalfType): VerifyCase {
  const [batch, channels, filters, pixels, cols] = [21, 24, 72, 35, 24 * 9]
  const window = { image: [5, 7], kernel: [3, 3], out: [1, 1], strides: [1, 1], dilations: [1, 1] }
  const shape = { ...window, batch, groups: 1, padsBegin: [0, -2], compute: type }
  const data = halfValues(type, filters * cols, 84)
  const weight: Weight = { format: type, rows: filters, cols, data }
  const { count, copy } = channelsLastCopy(filters, cols, 9)
  const channelsLast = new Uint16Array(count)
  jsKernels.runSync('copyStrided', { dtype: type, ...copy, src: data, dst: channelsLast })
  const x = halfValues(type, batch * pixels * channels, 85)
  const read = floatReader(type, x)
  const planes = Float32Array.from(x, (_, at) => {
    const [n, c, p] = [Math.floor(at / (channels * pixels)), Math.floor(at / pixels) % channels, at % pixels]
    return read((n * pixels + p) * channels + c)
  })
  const args = () => {
    const y = new Uint16Array(batch * filters)
    return { ...shape, weight, channelsLast, x, xDtype: type, y, yDtype: type }
  }
  const none = { channelsLast: undefined, xDtype: undefined, yDtype: undefined }
  const reference = { ...none, x: planes, y: f32(batch * filters) }
  return verifyCase('conv', `${type} image`, ['y'], tolerances[type], args, reference)
}

function normCase(yDtype: HalfType, { tokens: rows, cols }: VerifySizes): VerifyCase {
  const shape = { rows, cols, groups: 1, inner: 1, centered: false, eps: 1e-2, x: values(rows * cols, 83) }
  const args = () => ({ ...shape, yDtype, y: new Uint16Array(rows * cols) })
  const reference = { yDtype: undefined, y: f32(rows * cols) }
  return verifyCase('norm', `${yDtype} activations`, ['y'], tolerances[yDtype], args, reference)
}
