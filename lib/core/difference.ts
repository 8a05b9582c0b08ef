// difference.ts: maximum and relative errors of arrays.
import type { ElementArray } from './dtype.js'

/** ‖actual − expected‖ / ‖expected‖; 0 where both are equal. */
export function relativeError(actual: Float32Array, expected: Float32Array): number {
  let [error, size] = [0, 0]
  for (const [i, value] of expected.entries()) {
    error += (actual[i]! - value) ** 2
    size += value ** 2
  }
  return error === 0 ? 0 : Math.sqrt(error / size)
}

/** max|actual − expected| / max|expected|; NaN against NaN counts as equal, against anything else as infinitely far. */
export function largestError(actual: ElementArray, expected: ElementArray): number {
  let [difference, largest] = [0, 0]
  for (let i = 0; i < expected.length; ++i) {
    const [a, b] = [actual[i]!, expected[i]!]
    if (Object.is(a, b) || a === b) continue
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.POSITIVE_INFINITY
    difference = Math.max(difference, Math.abs(Number(a) - Number(b)))
  }
  if (difference === 0) return 0
  for (let i = 0; i < expected.length; ++i) largest = Math.max(largest, Math.abs(Number(expected[i]!)))
  return largest === 0 ? Number.POSITIVE_INFINITY : difference / largest
}
