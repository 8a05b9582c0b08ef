// resample.ts: resizing along one axis in plain TypeScript.
import type { KernelArgs } from '../kernels.js'
import { elements, type KernelRows, optional } from './row.js'

/** y[o, q, i] = offset[q] + Σ_t weights[q, t] · x[o, taps[q, t], i] */
function resample(args: KernelArgs['resample']): void {
  const { outer, size, inner, out, count, x, taps, weights, offset, y } = args
  for (let o = 0; o < outer; o++) {
    for (let q = 0; q < out; q++) {
      for (let i = 0; i < inner; i++) {
        let sum = offset?.[q] ?? 0
        for (let t = q * count; t < (q + 1) * count; t++) {
          sum += weights[t]! * x[(o * size + taps[t]!) * inner + i]!
        }
        y[(o * out + q) * inner + i] = sum
      }
    }
  }
}

/** Contract of resizing. */
export const resampleRows: KernelRows<'resample'> = {
  resample: {
    kernel: resample,
    sizes: ['outer', 'size', 'inner', 'out', 'count'],
    operands: ({ outer, size, inner, out, count }) => ({
      x: outer * size * inner,
      taps: elements('i32', out * count),
      weights: out * count,
      offset: optional(out),
      y: outer * out * inner,
    }),
  },
}
