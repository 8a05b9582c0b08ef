// close.js: whether two tensors agree: f32 and f64 to rtol 1e-3 and atol 1e-5, f16 to 2e-3, bf16 to 1e-2, everything
// else exactly.
import { floatReader, isInteger } from '#lib/runtime/js/elements.js'

/** @type {Record<string, [number, number]>} */
const tolerances = { f32: [1e-3, 1e-5], f64: [1e-3, 1e-5], f16: [2e-3, 2e-3], bf16: [1e-2, 1e-2] }

/**
 * @param {string} name
 * @param {{ dtype: any, shape: readonly number[], data: any }} actual
 * @param {{ dtype: any, shape: readonly number[], data: any }} expected
 * @returns {string | undefined} what differs
 */
export function difference(name, actual, expected) {
  const { dtype } = expected
  if (actual.dtype !== dtype) return `${name} is ${actual.dtype}, not ${dtype}`
  if (actual.shape.join() !== expected.shape.join()) {
    return `${name} has the shape [${actual.shape.join(', ')}], not [${expected.shape.join(', ')}]`
  }
  const read = (/** @type {any} */ data) =>
    isInteger(dtype) ? (/** @type {number} */ i) => data[i] : floatReader(dtype, data)
  const [a, b] = [read(actual.data), read(expected.data)]
  const [rtol, atol] = tolerances[dtype] ?? [0, 0]
  for (let i = 0; i < expected.data.length; i++) {
    const [x, y] = [a(i), b(i)]
    if (x === y || (Number.isNaN(x) && Number.isNaN(y))) continue
    if (typeof x === 'number' && Math.abs(x - y) <= atol + rtol * Math.abs(y)) continue
    return `${name}[${i}] is ${x}, not ${y}`
  }
  return undefined
}

/**
 * @param {string} name
 * @param {any} actual - a tensor, the tensors of a sequence, or null for a value that is not there
 * @param {any} expected
 * @returns {string | undefined} what differs
 */
export function differenceOfValues(name, actual, expected) {
  if (!Array.isArray(expected)) {
    if (actual && expected && !Array.isArray(actual)) return difference(name, actual, expected)
    return actual === expected ? undefined : `${name} is not what it should be`
  }
  if (actual?.length !== expected.length)
    return `${name} has ${actual?.length} tensors, not ${expected.length}`
  return expected.map((item, i) => difference(`${name}[${i}]`, actual[i], item)).find(Boolean)
}
