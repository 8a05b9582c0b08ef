// linear.ts: the linear layer in plain TypeScript. Weights are decoded row by row; sums are taken in double.
import type { KernelArgs } from '../kernels.js'
import { rowReader } from './weight-rows.js'

/** Σ_i a[aStart + i] · b[bStart + i] for i < count. */
export function dot(a: Float32Array, aStart: number, b: Float32Array, bStart: number, count: number): number {
  let sum = 0
  for (let i = 0; i < count; i++) sum += a[aStart + i]! * b[bStart + i]!
  return sum
}

/** y[start + i] += factor · x[xStart + i] for i < count. */
export function addScaled(
  factor: number,
  x: Float32Array,
  xStart: number,
  y: Float64Array,
  start: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) y[start + i]! += factor * x[xStart + i]!
}

/** y[t, o] = Σ_i x[t, i] W[o, i] + bias[o] */
export function linear({ weight, tokens, x, bias, y }: KernelArgs['linear']): void {
  const { rows, cols } = weight
  const row = rowReader(weight)
  for (let o = 0; o < rows; o++) {
    const w = row(o)
    const offset = bias ? bias[o]! : 0
    for (let t = 0; t < tokens; t++) y[t * rows + o] = dot(x, t * cols, w, 0, cols) + offset
  }
}

/** dx = dy · W, dweight = dyᵀ · x, dbias = Σ_t dy[t, :] */
export function linearBackward(args: KernelArgs['linearBackward']): void {
  const { weight, tokens, x, dy, dx, dweight, dbias } = args
  const { rows, cols } = weight
  const row = rowReader(weight)
  const dxSum = new Float64Array(dx ? tokens * cols : 0)
  const rowSum = new Float64Array(cols)
  for (let o = 0; o < rows; o++) {
    const w = row(o)
    rowSum.fill(0)
    let biasSum = 0
    for (let t = 0; t < tokens; t++) {
      const gradient = dy[t * rows + o]!
      biasSum += gradient
      if (dx) addScaled(gradient, w, 0, dxSum, t * cols, cols)
      if (dweight) addScaled(gradient, x, t * cols, rowSum, 0, cols)
    }
    dweight?.set(rowSum, o * cols)
    if (dbias) dbias[o] = biasSum
  }
  dx?.set(dxSum)
}
