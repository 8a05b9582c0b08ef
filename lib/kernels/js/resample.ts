// resample.ts: resizing along one axis in plain TypeScript.
import type { LayerKernelArgs } from '../layer-kernel-args.js'

/** y[o, q, i] = offset[q] + Σ_t weights[q, t] · x[o, taps[q, t], i] */
export function resample(args: LayerKernelArgs['resample']): void {
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
